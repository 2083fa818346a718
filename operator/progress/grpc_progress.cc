#include "operator/progress/grpc_progress.h"

#include <algorithm>

#include "base/core/check.h"
#include "base/core/log.h"
#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "fmt/format.h"
#include "google/protobuf/util/message_differencer.h"
#include "operator/progress/internal/poller.h"

namespace trainyard::control {

using google::protobuf::util::MessageDifferencer;

namespace {

// Intervals of silence after which an agent is helped to its membership in another way. One that
// starts needs a few.
constexpr int kHelpAfter = 10;
// The same of one that was not asked all that time, since others' connections came first.
constexpr int kHelpUnaskedAfter = 3 * kHelpAfter;
// An agent that was silent so often is asked half as often each time, down to one in kMaxSkip + 1
// rounds; in each round while the job is to stop: what it is told in time saves the job's last
// steps.
constexpr int kPatience = 2;
constexpr int kMaxSkip = 15;

// A new connection with TLS takes milliseconds of computing, most of it to read certificates: so
// many a second, beside those to tasks of index 0, and so many at once after a quiet time.
constexpr double kConnectsPerSecond = 40;
constexpr double kConnectsAtOnce = 40;

std::int64_t revisionOf(const JobWish& wish) {
  return wish.membership ? wish.membership->revision() : 0;
}

// Words of the same kind of failure vary; and between a busy operator and an agent that is away
// calls fail in the one way and the other, of which silence says the less. Each change is a write
// to the job's status.
bool isNews(std::string_view known, std::string_view reason) {
  return reason != known && (known.empty() || reason != kNoAnswer);
}

}  // namespace

struct GrpcProgress::Job {
  std::string uid;
  JobWish wish;
  JobReport report;
  std::map<std::string, std::shared_ptr<AgentPeer>> peers;  // by address
  // Shared by all connections of the job, made of `own_key`.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string own_key;
  std::optional<TimePoint> due;  // its entry in due_
  std::uint64_t round = 0;       // number of the one under way; 0: none
  bool hurry = false;            // the next one follows at once
};

GrpcProgress::GrpcProgress(AgentDirectory& directory, GrpcProgressOptions options)
    : directory_(directory), options_(std::move(options)) {}

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
    news = news || job->wish.stop_by.has_value() != wish.stop_by.has_value() ||
           revisionOf(job->wish) != revisionOf(wish);
    job->wish = wish;
    if (!news) return;
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
    }
    PollCall* const call = poller_.next(next);
    if (call == nullptr) continue;
    PollRound& round = call->round;
    round.onOver(call);
    --calls_;
    if (round.callsUnderWay() == 0) proceed(std::move(rounds_.extract(&round).mapped()));
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

void GrpcProgress::beginDue() {
  for (;;) {
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
  scheduleLocked(of.key, job, job.hurry ? now : std::max(now, of.began + options_.interval));
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
    answers = peersLocked(of.key, *job, agents, tls);
  }
  auto round = std::make_unique<PollRound>(std::move(named), std::move(answers), options_.timeout);
  round->ask(queue);
  return round;
}

// Connections to addresses that are no agent's any more are dropped.
std::vector<PollRound::Answer> GrpcProgress::peersLocked(const JobKey& key, Job& job,
                                                         const std::vector<AgentEndpoint>& agents,
                                                         const std::optional<AgentTls>& tls) {
  const std::string own_key = tls ? tls->key : "";
  if (job.own_key != own_key || (tls && !job.credentials)) {
    job.peers.clear();
    job.own_key = own_key;
    job.credentials = tls ? secureClient({tls->ca, tls->cert, tls->key}) : nullptr;
  }
  std::map<std::string, std::shared_ptr<AgentPeer>> peers;
  std::vector<PollRound::Answer> answers;
  for (const AgentEndpoint& agent : agents) {
    std::shared_ptr<AgentPeer> peer = job.peers[agent.address];
    if (peer == nullptr) {
      peer = std::make_shared<AgentPeer>();
      peer->silent_since = Poller::now();
    }
    peers[agent.address] = peer;
    if (peer->skip > 0) {
      --peer->skip;
      helpSilentLocked(key, job, agent, *peer, kHelpUnaskedAfter);
      continue;
    }
    if (peer->stub == nullptr) {
      if (tls && !mayConnectLocked(agent.key)) {
        helpSilentLocked(key, job, agent, *peer, kHelpUnaskedAfter);
        continue;
      }
      peer->stub = v1::Agent::NewStub(
          tls ? openSecureChannel(agent.address, job.credentials, tls->server_name)
              : openChannel(agent.address));
    }
    answers.push_back({agent, std::move(peer), std::nullopt});
  }
  job.peers = std::move(peers);
  // Of a task that does not run any more nothing is expected.
  std::erase_if(job.report.unreachable, [&](const auto& entry) {
    return std::none_of(agents.begin(), agents.end(), [&](const AgentEndpoint& agent) {
      return agent.key == entry.first && agent.created == entry.second.created;
    });
  });
  return answers;
}

bool GrpcProgress::mayConnectLocked(const TaskKey& task) {
  const TimePoint now = Poller::now();
  connects_ =
      std::min(kConnectsAtOnce, connects_ + toSeconds(now - connects_at_) * kConnectsPerSecond);
  connects_at_ = now;
  if (connects_ < 1 && task.index != 0) return false;
  connects_ = std::max(0.0, connects_ - 1);
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
    if (!round.told()) {
      const bool news = takeLocked(job, round.answers());
      if (judgeLocked(job, round) || news) changed = changed_;
    }
    for (AgentEndpoint& agent : round.unreached()) {
      unreached_.push_back({key, std::move(agent), revisionOf(job.wish)});
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

bool GrpcProgress::noteSilenceLocked(Job& job, const PollRound::Answer& answer) {
  const AgentEndpoint& agent = answer.endpoint;
  if (Poller::now() - answer.peer->silent_since < options_.unreachable_after) return false;
  JobReport::Unreachable& known = job.report.unreachable[agent.key];
  if (known.created == agent.created && !isNews(known.why.reason, answer.why.reason)) return false;
  known = {agent.created, answer.why};
  return true;
}

std::size_t GrpcProgress::unreachable() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [key, job] : jobs_) count += job->report.unreachable.size();
  return count;
}

bool GrpcProgress::judgeLocked(Job& job, PollRound& round) {
  const TimePoint now = Poller::now();
  const std::int64_t revision = revisionOf(job.wish);
  bool news = false;
  for (const PollRound::Answer& answer : round.answers()) {
    AgentPeer& peer = *answer.peer;
    if (answer.state) {
      news = job.report.unreachable.erase(answer.endpoint.key) > 0 || news;
      const bool often = answer.endpoint.key.index == 0 || answer.state->revision() < revision;
      peer.silent_rounds = 0;
      peer.silent_since = now;
      peer.helped = false;
      peer.skip = often ? 0 : options_.others_every - 1;
      continue;
    }
    news = noteSilenceLocked(job, answer) || news;
    peer.refusals = 0;
    if (job.credentials) peer.stub.reset();
    const int beyond = ++peer.silent_rounds - kPatience;
    const bool rarely = beyond > 0 && !job.wish.stop_by;
    peer.skip = rarely ? std::min(kMaxSkip, (1 << std::min(beyond, 10)) - 1) : 0;
    helpSilentLocked(round.job().key, job, answer.endpoint, peer, kHelpAfter);
  }
  return news;
}

void GrpcProgress::helpSilentLocked(const JobKey& key, const Job& job, const AgentEndpoint& agent,
                                    AgentPeer& peer, int intervals) {
  const bool long_silent = Poller::now() - peer.silent_since >= intervals * options_.interval;
  if (!long_silent || peer.helped || revisionOf(job.wish) == 0) return;
  peer.helped = true;
  unreached_.push_back({key, agent, revisionOf(job.wish)});
  news_.notify_all();
}

bool GrpcProgress::takeLocked(Job& job, const std::vector<PollRound::Answer>& answers) {
  JobReport& report = job.report;
  bool news = false;
  for (const PollRound::Answer& answer : answers) {
    if (!answer.state) continue;
    v1::TaskState& known = report.tasks[answer.endpoint.key];
    if (MessageDifferencer::Equals(known, *answer.state)) continue;
    known = *answer.state;
    news = true;
    // A later life of the coordinator outweighs an earlier one, whatever is read last.
    if (known.report().has_job() && known.created() >= report.progress_created) {
      report.progress = known.report().job();
      report.progress_created = known.created();
    }
  }
  return news;
}

void GrpcProgress::helpUnreached() {
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return stopping_ || !unreached_.empty(); });
    if (stopping_) return;
    const Unreached next = std::move(unreached_.front());
    unreached_.pop_front();
    lock.unlock();
    directory_.pushFailed(next.key, next.agent, next.revision);
    lock.lock();
  }
}

}  // namespace trainyard::control
