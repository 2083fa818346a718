// Copies of what the chief records, where its folder goes with its pod: for readers, and for the
// chief's next life.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"

namespace trainyard::runtime {

// PLACE/metrics.jsonl, with the lines of the chief's former lives first, and PLACE/events/NAME. A
// copy is a whole file each time, in place of the one before.
class KeptRecords {
 public:
  struct Options {
    std::filesystem::path
        job_dir;        // metrics.jsonl, events/, and metrics.former.jsonl, which is ours
    std::string place;  // a folder of a storage (runtime/storage/storage.h)
    // The first copy comes earlier, the next ones after twice as long each until then.
    Duration first = std::chrono::seconds(10);
    Duration every = std::chrono::minutes(1);
    // Of large records copies come more rarely, so that no more than this is sent on average.
    double bytes_per_second = 1e6;
  };
  // Copies from now on, on a thread of its own. Of failures in a row the first is logged.
  explicit KeptRecords(Options options);
  // What was recorded since the last copy is not copied.
  ~KeptRecords();
  KeptRecords(const KeptRecords&) = delete;
  KeptRecords& operator=(const KeptRecords&) = delete;

  // The last copy: of all that is recorded by now. Blocks for the storage, once.
  void finish();

 private:
  void run();
  void stop();
  Status copyAll();
  // What former lives have recorded, unless it was asked before. As long as nobody knows, nothing
  // is put in its place.
  Status fetchFormer();
  // All of `files`, one after the other, as `name`.
  Status copy(const std::string& name, const std::vector<std::filesystem::path>& files);
  void note(const Status& status);

  const Options options_;
  const std::filesystem::path lines_;
  const std::filesystem::path former_;
  std::map<std::string, std::uint64_t> copied_;  // sizes by name
  std::uint64_t sent_ = 0;                       // bytes by the last copyAll()
  bool complained_ = false;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace trainyard::runtime
