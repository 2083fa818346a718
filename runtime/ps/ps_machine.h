// What a parameter server's process does with the coordinator's views: seal, prepare, snapshot,
// leave. Decides only; the rim loads, writes files and talks.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/ps/shard.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime::ps {

// Not thread-safe: the owner locks. The shard is thread-safe by itself.
class PsMachine {
 public:
  explicit PsMachine(Shard& shard) : shard_(shard) {}

  // Answers to parked calls that a seal ends are added to `answers`.
  void onView(const v1::View& view, std::vector<ChunkAnswer>& answers);

  // An epoch to prepare, once: load what it starts from (see EpochInfo) into the shard, then
  // onPrepared.
  std::optional<v1::EpochInfo> takePrepare();
  // The rim has loaded; opens the shard. A failure is reported and ends the job.
  void onPrepared(const v1::EpochInfo& epoch, const Status& loaded);
  // An epoch that has begun, in which parts are to be copied here (EpochInfo.copies), once; then
  // onCopied, unless it ends before.
  std::optional<v1::EpochInfo> takeCopies();
  void onCopied(const v1::EpochInfo& epoch);
  // A snapshot's file is on disk (or has failed: file.error).
  void onWritten(const v1::ShardFile& file);

  void fillReport(v1::MemberReport& report) const;
  // Of a shard that only keeps replicas: what it adds to the report of the worker that it is in.
  void fillKept(v1::MemberReport& report) const;
  bool takeUrgent();
  // It holds its part of the newest epoch, which has begun.
  bool serves() const;
  // The job is over for this server (done, stopped or failed, or it has left).
  bool over() const;
  const v1::View& view() const { return view_; }

 private:
  bool keeper() const;
  void fillShard(v1::MemberReport& report) const;
  bool missedSteps(const v1::EpochInfo& epoch) const;

  Shard& shard_;
  v1::View view_;
  bool has_view_ = false;
  std::int64_t highest_epoch_ = 0;
  std::int64_t preparing_ = 0;  // epoch handed to the rim
  std::int64_t prepared_ = 0;
  std::int64_t released_ = 0;  // epoch that has begun everywhere
  std::int64_t copied_ = 0;    // epoch in which all that was to be copied here is
  std::int64_t armed_ = -1;
  v1::EpochInfo begun_;  // the newest that was seen to compute
  std::optional<v1::EpochInfo> to_prepare_;
  std::optional<v1::EpochInfo> to_copy_;
  std::deque<v1::ShardFile> written_;  // the newest few
  std::string problem_;
  bool urgent_ = true;
};

}  // namespace trainyard::runtime::ps
