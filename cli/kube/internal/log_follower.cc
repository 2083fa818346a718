#include "cli/kube/internal/log_follower.h"

#include <algorithm>
#include <utility>

#include "cli/kube/cluster_view.h"
#include "cli/kube/pod_logs.h"

namespace trainyard::cli::internal {
namespace {

using Lock = std::unique_lock<std::mutex>;

constexpr Duration kPrint = std::chrono::milliseconds(100);
constexpr Duration kLook = std::chrono::seconds(1);
// A stream is opened anew after this time.
constexpr Duration kStream = std::chrono::hours(1);
// A node ends a stream about a second after its container. One that it forgot says nothing for so
// long, and is asked anew.
constexpr Duration kStale = std::chrono::seconds(5);
// Failures that pass are waited out so long.
constexpr Duration kPatience = std::chrono::seconds(60);
// What runs on after the end of its job (cleanPodPolicy None) is left alone after so much silence.
constexpr Duration kQuiet = std::chrono::seconds(3);
// More lines than this wait for nobody: their streams are held back.
constexpr std::size_t kMaxLines = 10'000;

bool mayPass(const Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

}  // namespace

LogFollower::LogFollower(control::KubeClient& client, const Clock& clock, const JobView& job,
                         const LogRequest& request, const LogPrinter& print)
    : client_(client),
      clock_(clock),
      job_(job),
      request_(request),
      print_(print),
      news_(clock.now()) {}

// Whether the job goes on, and which pods there are.
Status LogFollower::look() {
  const auto object = client_.get(control::kTrainingJobs, job_.ns, job_.name);
  bool over = absl::IsNotFound(object.status());
  if (object.ok()) {
    TY_ASSIGN_OR_RETURN(const JobView now, clusterView(*object));
    over = now.finished() || now.state == "Suspended" ||
           now.job.metadata().uid() != job_.job.metadata().uid();
  } else if (!over) {
    return object.status();
  }
  TY_ASSIGN_OR_RETURN(const std::vector<LogPod> pods, listLogPods(client_, job_, request_.task));
  for (const LogPod& pod : pods) take(pod);
  first_look_ = false;
  const Lock lock(mutex_);
  for (auto& [uid, source] : sources_) {
    const bool there =
        std::any_of(pods.begin(), pods.end(), [&](const LogPod& pod) { return pod.uid == uid; });
    // Nothing can be asked of a pod that is gone.
    if (!there && !source->reads) source->over = true;
  }
  if (over && !job_over_) news_ = clock_.now();
  job_over_ = over;
  return absl::OkStatus();
}

void LogFollower::take(const LogPod& pod) {
  const Lock lock(mutex_);
  std::unique_ptr<Source>& source = sources_[pod.uid];
  if (source == nullptr) {
    source = std::make_unique<Source>();
    // What appears later is new altogether.
    if (first_look_) source->tail = request_.tail;
  }
  if (source->reads) cutStale(*source, pod);
  if (source->reads || source->over) return;
  // A stream that began after the end and was read to its end has told everything.
  if (source->was_ended && source->failure.ok()) {
    source->over = true;
    return;
  }
  source->pod = pod;
  if (pod.started) start(*source);
}

// With mutex_ held.
void LogFollower::cutStale(Source& source, const LogPod& pod) {
  const TimePoint now = clock_.now();
  if (!pod.ended) return;
  if (!source.ended) source.ended = now;
  if (now - std::max(*source.ended, source.news) > kStale) source.thread.request_stop();
}

void LogFollower::start(Source& source) {
  source.was_ended = source.pod.ended;
  source.reads = true;
  source.ended.reset();
  source.failure = absl::OkStatus();
  source.thread =
      std::jthread([this, &source](const std::stop_token& stop) { read(source, stop); });
}

void LogFollower::read(Source& source, const std::stop_token& stop) {
  control::PodLogQuery query;
  control::HttpLimits limits = client_.options().limits;
  limits.deadline = limits.inactivity = kStream;
  limits.stop = stop;
  std::int64_t known = 0;
  {
    const Lock lock(mutex_);
    query.follow = !source.was_ended;
    query.container = source.pod.container;
    query.since = source.since;
    if (source.since.empty()) query.tail = source.tail;
    known = source.last;
  }
  const Status ended =
      client_.with(limits).podLog(job_.ns, source.pod.name, query, [&](std::string_view line) {
        const auto [time, text] = splitStamp(line);
        if (time != 0 && time <= known) return true;  // read before the connection was lost
        Lock lock(mutex_);
        changed_.wait(lock, stop, [this] { return lines_.size() < kMaxLines; });
        if (time != 0) {
          source.last = time;
          source.since = std::string(line.substr(0, line.size() - text.size() - 1));
        }
        source.news = clock_.now();
        lines_.push_back({source.last, source.pod.task, std::string(text)});
        return !stop.stop_requested();
      });
  const Lock lock(mutex_);
  // What was cut short was not read to its end, whatever it says.
  source.failure = stop.stop_requested() ? absl::CancelledError("cut") : ended;
  source.reads = false;
  changed_.notify_all();
}

// Of a stream, where it will not pass.
Status LogFollower::failure() {
  const Lock lock(mutex_);
  for (const auto& [uid, source] : sources_) {
    if (!source->reads && !source->failure.ok() && !mayPass(source->failure) &&
        !hasNoLog(source->failure)) {
      return source->failure;
    }
  }
  return absl::OkStatus();
}

bool LogFollower::isOver() {
  if (!job_over_) return false;
  const Lock lock(mutex_);
  const bool all = std::all_of(sources_.begin(), sources_.end(), [](const auto& source) {
    return source.second->over || !source.second->pod.started;
  });
  return all || clock_.now() - news_ > kQuiet;
}

void LogFollower::drain() {
  std::vector<LogLine> lines;
  {
    const Lock lock(mutex_);
    lines.swap(lines_);
    changed_.notify_all();
  }
  if (!lines.empty()) news_ = clock_.now();
  printByTime(&lines, print_);
}

Status LogFollower::run() {
  TimePoint next = clock_.now();
  TimePoint answered = next;
  Status end;
  for (;;) {
    if (clock_.now() >= next) {
      end = failure();  // before look() begins the streams anew
      const Status looked = end.ok() ? look() : end;
      if (looked.ok()) answered = clock_.now();
      const bool waited = clock_.now() - answered > kPatience;
      if (!looked.ok() && (waited || !mayPass(looked))) end = looked;
      next = clock_.now() + kLook;
    }
    drain();
    if (!print_.flush() || !end.ok() || isOver()) break;
    Lock lock(mutex_);
    changed_.wait_until(lock, std::min(next, clock_.now() + kPrint));
  }
  for (auto& [uid, source] : sources_) source->thread.request_stop();
  sources_.clear();  // joins the threads
  drain();
  print_.flush();
  return end;
}

}  // namespace trainyard::cli::internal
