#include "runtime/task/snapshot_writer.h"

#include <optional>
#include <utility>

#include "runtime/task/shard_files.h"

namespace trainyard::runtime {

SnapshotWriter::SnapshotWriter(const TaskOptions& options, const Optimizer& optimizer,
                               std::vector<ManifestTable> tables, ps::Shard& shard,
                               std::function<void(const v1::ShardFile&)> written)
    : options_(options),
      optimizer_(optimizer),
      tables_(std::move(tables)),
      shard_(shard),
      written_(std::move(written)) {}

bool SnapshotWriter::take(const std::shared_ptr<const Placement>& placement,
                          const std::function<bool()>& others_wait) {
  while (shard_.captureNext() && !others_wait()) {
  }
  bool taken = false;
  while (std::optional<Snapshot> snapshot = shard_.takeSnapshot()) {
    std::lock_guard lock(mutex_);
    // Of an epoch that has ended nobody wants any.
    std::erase_if(to_write_,
                  [&](const ToWrite& one) { return one.snapshot.epoch != snapshot->epoch; });
    to_write_.push_back({*std::move(snapshot), placement});
    thread_.add([this] { writeNext(); });
    taken = true;
  }
  return taken;
}

void SnapshotWriter::writeNext() {
  ToWrite next;
  {
    std::lock_guard lock(mutex_);
    if (to_write_.empty()) return;
    next = std::move(to_write_.front());
    to_write_.pop_front();
  }
  written_(writeSnapshot(options_.checkpointDir(), *next.placement, optimizer_, tables_,
                         options_.id, options_.self, next.snapshot));
}

}  // namespace trainyard::runtime
