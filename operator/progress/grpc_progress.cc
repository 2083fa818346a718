#include "operator/progress/grpc_progress.h"

#include <algorithm>
#include <functional>

#include "base/core/check.h"
#include "base/core/log.h"
#include "fmt/format.h"
#include "operator/progress/internal/followed_job.h"
#include "operator/progress/internal/poller.h"

namespace trainyard::control {

namespace {

// Of many jobs that have got on, after a quiet time.
constexpr int kProgressAtOnce = 5;
// Rounds that are begun before calls under way are looked after again.
constexpr int kBegunAtOnce = 8;

}  // namespace

GrpcProgress::GrpcProgress(AgentDirectory& directory, GrpcProgressOptions options)
    : directory_(directory),
      options_(std::move(options)),
      progress_allowed_(options_.progress_per_second, kProgressAtOnce) {}

GrpcProgress::~GrpcProgress() {
  stop();
}

void GrpcProgress::start() {
  TY_CHECK(!thread_.joinable(), "started once");
  thread_ = std::thread([this] { loop(); });
  helper_ = std::thread([this] { helpUnreached(); });
}

void GrpcProgress::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    news_.notify_all();
  }
  poller_.wake();
  if (thread_.joinable()) thread_.join();
  if (helper_.joinable()) helper_.join();
}

void GrpcProgress::watch(std::function<void(const JobKey&)> changed) {
  const std::lock_guard lock(mutex_);
  changed_ = std::move(changed);
}

JobReport GrpcProgress::newest(const JobKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(key);
  return it == jobs_.end() ? JobReport{} : it->second->report;
}

Duration GrpcProgress::progressEveryLocked() const {
  return stretched(options_.progress_every, jobs_.size(), options_.progress_per_second);
}

void GrpcProgress::unscheduleLocked(const JobKey& key, Job& job) {
  if (job.due) due_.erase({*job.due, key});
  job.due.reset();
}

void GrpcProgress::scheduleLocked(const JobKey& key, Job& job, TimePoint due) {
  unscheduleLocked(key, job);
  job.due = due;
  due_.insert({due, key});
}

void GrpcProgress::follow(const JobKey& key, const std::string& uid, const JobWish& wish) {
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Job>& job = jobs_[key];
    bool news = false;
    if (job == nullptr || job->uid != uid) {
      if (job) unscheduleLocked(key, *job);
      job = std::make_unique<Job>();
      job->uid = uid;
      news = true;
    }
    const std::int64_t known = job->revision();
    news = news || job->wish.stop_by.has_value() != wish.stop_by.has_value() ||
           job->wish.last_word != wish.last_word;
    job->wish = wish;
    if (!news && job->revision() == known) return;
    job->hurry = true;
    for (const auto& [address, peer] : job->peers) {
      if (peer->silent_rounds == 0 || wish.stop_by) peer->skip = 0;
    }
    if (job->round != 0) return;
    scheduleLocked(key, *job, Poller::now());
  }
  poller_.wake();
}

void GrpcProgress::forget(const JobKey& key) {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(key);
  if (it == jobs_.end()) return;
  unscheduleLocked(key, *it->second);
  jobs_.erase(it);
}

void GrpcProgress::loop() {
  for (;;) {
    beginDue();
    std::optional<TimePoint> next;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
      if (!due_.empty() && calls_ < options_.calls) next = due_.begin()->first;
      const std::optional<TimePoint> sweep = sweepLocked();
      if (sweep) next = std::min(next.value_or(*sweep), *sweep);
    }
    PollCall* call = poller_.next(next);
    for (; call != nullptr; call = poller_.next(TimePoint())) onOver(call);
  }
  for (const auto& [round, own] : rounds_) round->cancel();
  while (calls_ > 0) {
    PollCall* const call = poller_.next(std::nullopt);
    if (call == nullptr) continue;
    call->round.onOver(call);
    --calls_;
  }
  rounds_.clear();
}

void GrpcProgress::onOver(PollCall* call) {
  PollRound& round = call->round;
  round.onOver(call);
  --calls_;
  if (round.callsUnderWay() == 0) proceed(std::move(rounds_.extract(&round).mapped()));
}

// A few at a time: calls that are over, and connections that are being made, must not wait until
// nothing is due.
void GrpcProgress::beginDue() {
  for (int rounds = 0; rounds < kBegunAtOnce; ++rounds) {
    PollRound::Job of;
    {
      const std::lock_guard lock(mutex_);
      of.began = Poller::now();
      if (stopping_ || calls_ >= options_.calls) return;
      if (due_.empty() || due_.begin()->first > of.began) return;
      of.key = due_.begin()->second;
      of.number = ++rounds_begun_;
      Job& job = *jobs_.at(of.key);
      unscheduleLocked(of.key, job);
      job.round = of.number;
      job.hurry = false;
    }
    auto begun = beginRound(of, poller_.queue());
    if (begun.ok()) {
      calls_ += (*begun)->callsUnderWay();
      proceed(*std::move(begun));
    } else {
      TY_DEBUG("poll {}: {}", toString(of.key), begun.status().ToString());
      endRound(of);
    }
  }
}

void GrpcProgress::proceed(std::unique_ptr<PollRound> round) {
  if (round->callsUnderWay() == 0 && goOn(*round, poller_.queue())) {
    calls_ += round->callsUnderWay();
  }
  if (round->callsUnderWay() == 0) return endRound(round->job());
  PollRound* const key = round.get();
  rounds_.emplace(key, std::move(round));
}

void GrpcProgress::endRound(const PollRound::Job& of) {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(of.key);
  // A successor of that name has rounds of its own.
  if (it == jobs_.end() || it->second->round != of.number) return;
  Job& job = *it->second;
  job.round = 0;
  const TimePoint now = Poller::now();
  job.pace = stretched(options_.interval, jobs_.size(),
                       job.calm ? options_.calm_rounds_per_second : options_.rounds_per_second);
  const std::size_t phase = std::hash<std::string>()(toString(of.key));
  scheduleLocked(of.key, job,
                 job.hurry ? now : std::max(now, ownMoment(of.began, job.pace, phase)));
}

Status GrpcProgress::pollOnce(const JobKey& key) {
  grpc::CompletionQueue queue;
  PollRound::Job of;
  of.key = key;
  TY_ASSIGN_OR_RETURN(const std::unique_ptr<PollRound> round, beginRound(of, queue));
  bool more = true;
  while (more) {
    while (round->callsUnderWay() > 0) {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      round->onOver(static_cast<PollCall*>(tag));
    }
    more = goOn(*round, queue);
  }
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<PollRound>> GrpcProgress::beginRound(const PollRound::Job& of,
                                                              grpc::CompletionQueue& queue) {
  PollRound::Job named = of;
  const auto find = [&]() -> Job* {
    const auto it = jobs_.find(of.key);
    const bool same = it != jobs_.end() && (named.uid.empty() || it->second->uid == named.uid);
    return same ? it->second.get() : nullptr;
  };
  const auto none = absl::NotFoundError(fmt::format("{} is not followed", toString(of.key)));
  {
    const std::lock_guard lock(mutex_);
    const Job* const job = find();
    if (job == nullptr) return none;
    named.uid = job->uid;
  }
  TY_ASSIGN_OR_RETURN(const std::vector<AgentEndpoint> agents, directory_.agents(of.key));
  TY_ASSIGN_OR_RETURN(named.token, directory_.token(of.key));
  TY_ASSIGN_OR_RETURN(const std::optional<AgentTls> tls, directory_.tls(of.key));
  std::vector<PollRound::Answer> answers;
  {
    const std::lock_guard lock(mutex_);
    Job* const job = find();
    if (job == nullptr) return none;
    sweepLocked();
    answers = peersLocked(of.key, *job, agents, tls);
  }
  auto round = std::make_unique<PollRound>(std::move(named), std::move(answers), options_.timeout);
  round->ask(queue);
  return round;
}

bool GrpcProgress::noteLocked(Job& job, News news) {
  job.calm = job.calm && news != News::kState;
  job.progressed = job.progressed || news != News::kNone;
  const TimePoint now = Poller::now();
  std::optional<TimePoint>& due = job.report.progress_due;
  const bool waits = !job.progressed || (due && now - *due < progressEveryLocked());
  if (waits || !progress_allowed_.take(now)) return news == News::kState;
  due = now;
  job.progressed = false;
  return true;
}

bool GrpcProgress::goOn(PollRound& round, grpc::CompletionQueue& queue) {
  const JobKey key = round.job().key;
  std::function<void(const JobKey&)> changed;
  JobWish wish;
  {
    const std::lock_guard lock(mutex_);
    const auto it = jobs_.find(key);
    if (it == jobs_.end() || it->second->uid != round.job().uid) return false;
    Job& job = *it->second;
    if (!round.told() &&
        noteLocked(job, std::max(takeLocked(job, round.answers()), judgeLocked(job, round)))) {
      changed = changed_;
    }
    for (const PollRound::Answer& answer : round.answers())
      answer.peer->revision = std::max(answer.peer->revision, answer.told);
    for (AgentEndpoint& agent : round.unreached()) {
      unreached_.push_back({key, std::move(agent), job.revision()});
    }
    if (!round.unreached().empty()) news_.notify_all();
    round.unreached().clear();
    wish = job.wish;
  }
  if (changed) changed(key);
  if (round.told()) return false;
  if (!options_.may_tell()) wish = {};
  round.tell(queue, wish, Poller::now());
  return true;
}

std::size_t GrpcProgress::unreachable() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [key, job] : jobs_) count += job->report.unreachable.size();
  return count;
}

// Of many that wait for help some are heard of before it is their turn.
bool GrpcProgress::lacksLocked(const Unreached& unreached) const {
  const auto job = jobs_.find(unreached.key);
  if (job == jobs_.end()) return false;
  const auto peer = job->second->peers.find(unreached.agent.address);
  return peer != job->second->peers.end() && peer->second->revision < unreached.revision;
}

void GrpcProgress::helpUnreached() {
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return stopping_ || !unreached_.empty(); });
    if (stopping_) return;
    const Unreached next = std::move(unreached_.front());
    unreached_.pop_front();
    if (!lacksLocked(next)) continue;
    lock.unlock();
    directory_.pushFailed(next.key, next.agent, next.revision);
    lock.lock();
  }
}

}  // namespace trainyard::control
