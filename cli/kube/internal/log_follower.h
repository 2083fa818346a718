// The logs of a job's pods as they grow.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cli/kube/internal/log_pods.h"
#include "operator/kube/client.h"

namespace trainyard::cli::internal {

// One stream for each pod, on a thread of its own; the caller's thread looks which pods there are,
// and prints. Used once.
class LogFollower {
 public:
  LogFollower(control::KubeClient& client, const Clock& clock, const JobView& job,
              const LogRequest& request, const LogPrinter& print);

  // See readPodLogs().
  Status run();

 private:
  struct Source {
    LogPod pod;
    std::optional<std::int64_t> tail;  // of its first stream
    std::string since;                 // the stamp of the last line that was read
    std::int64_t last = 0;             // the same as a number
    bool reads = false;                // its thread is at work
    bool was_ended = false;            // the container had ended when this stream began
    bool over = false;                 // everything is read
    std::optional<TimePoint> ended;    // since when the container is known to have
    TimePoint news;                    // the last line
    Status failure;                    // of the last stream
    std::jthread thread;               // of this stream, which ends when it is asked to stop
  };

  Status look();
  void take(const LogPod& pod);
  void cutStale(Source& source, const LogPod& pod);
  void start(Source& source);
  void read(Source& source, const std::stop_token& stop);
  Status failure();
  bool isOver();
  void drain();

  control::KubeClient& client_;
  const Clock& clock_;
  const JobView job_;
  const LogRequest request_;
  const LogPrinter& print_;
  bool first_look_ = true;
  bool job_over_ = false;
  TimePoint news_;  // the last line, or the end of the job

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<LogLine> lines_;
  // By the uid of the pod. Last: its threads end before anything else goes.
  std::map<std::string, std::unique_ptr<Source>> sources_;
};

}  // namespace trainyard::cli::internal
