// Whom a round asks, and what answers and silence mean for the rounds to come.
#include <algorithm>

#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "operator/progress/grpc_progress.h"
#include "operator/progress/internal/followed_job.h"
#include "operator/progress/internal/poller.h"
#include "operator/progress/internal/silence.h"

namespace trainyard::control {

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
// The coordinator's word on another task holds for so many rounds at least.
constexpr int kHeardFor = 3;
// So many at once to tasks of another index than 0, where connections are encrypted: in a burst of
// new jobs those of earlier ones are closed first. Who has waited for so long waits no longer:
// programs of users' own keep theirs.
constexpr int kOthersOpen = 500;
constexpr Duration kWaitsForRoom = std::chrono::seconds(10);
// Attempts to connect at a time, of which tasks of another index than 0 have some only: where
// computers are busy a handshake takes long, and the more are under way the longer each takes,
// until none is done in a call's time. Those that are not young count no more: nobody may be there.
constexpr int kConnectAtOnce = 32;
constexpr int kOthersConnectAtOnce = 24;
constexpr Duration kYoung = std::chrono::seconds(1);
// Less than gRPC waits from one attempt to the next.
constexpr Duration kSweepEvery = std::chrono::milliseconds(50);

// The agent of the task that has the coordinator of a job whose model is ours. Null: it does not
// run.
const AgentEndpoint* coordinatorAmong(const std::vector<AgentEndpoint>& agents) {
  const bool servers = std::any_of(agents.begin(), agents.end(), [](const AgentEndpoint& agent) {
    return agent.key.role == v1::ROLE_PS;
  });
  const TaskKey wanted{servers ? v1::ROLE_PS : v1::ROLE_WORKER, 0};
  const auto found = std::find_if(agents.begin(), agents.end(),
                                  [&](const AgentEndpoint& agent) { return agent.key == wanted; });
  return found == agents.end() ? nullptr : &*found;
}

}  // namespace

// A channel that has failed begins a next attempt soon: it is to be gone before.
std::optional<TimePoint> GrpcProgress::sweepLocked() {
  const TimePoint now = Poller::now();
  if (connecting_.empty()) return std::nullopt;
  if (now - swept_at_ < kSweepEvery) return swept_at_ + kSweepEvery;
  swept_at_ = now;
  std::erase_if(connecting_, [&](const std::shared_ptr<AgentPeer>& peer) {
    const grpc_connectivity_state state = peer->state();
    const bool begins = state == GRPC_CHANNEL_IDLE && now - peer->connecting_since < kYoung;
    if (begins || state == GRPC_CHANNEL_CONNECTING) return false;
    if (state != GRPC_CHANNEL_READY) peer->disconnect();
    return true;
  });
  return now + kSweepEvery;
}

// Connections to addresses that are no agent's any more are dropped.
void GrpcProgress::followLocked(Job& job, const std::vector<AgentEndpoint>& agents) {
  std::map<std::string, std::shared_ptr<AgentPeer>> peers;
  job.tasks.clear();
  for (const AgentEndpoint& agent : agents) {
    std::shared_ptr<AgentPeer> peer = job.peers[agent.address];
    if (peer == nullptr) {
      peer = std::make_shared<AgentPeer>();
      peer->silent_since = Poller::now();
    }
    job.tasks[agent.key] = {agent.created, peer};
    peers[agent.address] = std::move(peer);
  }
  job.peers = std::move(peers);
  // Of a task that does not run any more nothing is expected.
  std::erase_if(job.report.unreachable, [&](const auto& entry) {
    const auto task = job.tasks.find(entry.first);
    return task == job.tasks.end() || task->second.created != entry.second.created;
  });
}

std::vector<PollRound::Answer> GrpcProgress::peersLocked(const JobKey& key, Job& job,
                                                         const std::vector<AgentEndpoint>& agents,
                                                         const std::optional<AgentTls>& tls) {
  const std::string own_key = tls ? tls->key : "";
  if (job.own_key != own_key || (tls && !job.credentials)) {
    job.peers.clear();
    job.own_key = own_key;
    job.credentials = tls ? secureClient({tls->ca, tls->cert, tls->key}) : nullptr;
  }
  followLocked(job, agents);
  const AgentEndpoint* const first =
      options_.ask_coordinator_only ? coordinatorAmong(agents) : nullptr;
  // It may speak for all: an operator that has just begun need not connect to everybody, and where
  // processors are busy to ask nine in place of one makes all of them late.
  const auto speaker = first == nullptr ? nullptr : job.peers[first->address];
  const bool only_first = speaker != nullptr && !speaker->answered &&
                          !speaker->isLate(Poller::now(), options_.coordinator_late);
  std::vector<PollRound::Answer> answers;
  for (const AgentEndpoint& agent : agents) {
    const std::shared_ptr<AgentPeer>& peer = job.peers[agent.address];
    const bool other = first != nullptr && &agent != first;
    // Before there is a membership there is nothing to tell anybody.
    if (other && (only_first || job.revision() == 0 || spokenForLocked(job, peer))) continue;
    if (peer->skip > 0 || !connectLocked(job, agent, peer, tls)) {
      if (peer->skip > 0) --peer->skip;
      helpSilentLocked(key, job, agent, *peer, kHelpUnaskedAfter);
      continue;
    }
    peer->asked_at = Poller::now();
    answers.push_back({agent, peer, peer->stub, std::nullopt});
  }
  return answers;
}

bool GrpcProgress::spokenForLocked(const Job& job, const std::shared_ptr<AgentPeer>& peer) {
  const TimePoint now = Poller::now();
  const Duration holds =
      std::max(kHeardFor * std::max(job.pace, options_.interval), options_.word_holds);
  if (!peer->heard_at || now - *peer->heard_at > holds || peer->revision < job.revision())
    return false;
  if (peer->stub != nullptr && peer->asked_at && now - *peer->asked_at > options_.idle &&
      !connecting_.contains(peer))
    peer->disconnect();
  return true;
}

bool GrpcProgress::mayConnectLocked(const AgentEndpoint& agent, const AgentPeer& peer,
                                    TimePoint now) {
  const bool first = agent.key.index == 0;
  const auto young = std::ranges::count_if(
      connecting_, [&](const auto& other) { return now - other->connecting_since < kYoung; });
  if (young >= (first ? kConnectAtOnce : kOthersConnectAtOnce)) return false;
  const bool room = first || *others_open_ < kOthersOpen || now - peer.silent_since > kWaitsForRoom;
  return room && (first ? first_connects_ : connects_).take(now);
}

bool GrpcProgress::connectLocked(const Job& job, const AgentEndpoint& agent,
                                 const std::shared_ptr<AgentPeer>& peer,
                                 const std::optional<AgentTls>& tls) {
  if (peer->stub != nullptr) return true;
  const TimePoint now = Poller::now();
  if (tls && !mayConnectLocked(agent, *peer, now)) return false;
  if (agent.key.index != 0) {
    ++*others_open_;
    peer->counted = std::shared_ptr<void>(nullptr, [open = others_open_](void*) { --*open; });
  }
  const ChannelOptions options{.connect = 2 * options_.timeout, .small = true};
  peer->channel = tls ? openSecureChannel(agent.address, job.credentials, tls->server_name, options)
                      : openChannel(agent.address, options);
  peer->stub = v1::Agent::NewStub(peer->channel);
  peer->connecting_since = now;
  connecting_.insert(peer);
  return true;
}

News GrpcProgress::noteSilenceLocked(Job& job) {
  std::vector<Silence> silent;
  bool more = false;  // that have not been asked yet
  for (const auto& [key, task] : job.tasks) {
    const AgentPeer& peer = *task.peer;
    if (peer.silent_rounds > 0) silent.push_back({key, task.created, peer.failing_since, peer.why});
    const bool heard = peer.answered || peer.heard_at;
    more = more || (job.revision() > 0 && peer.silent_rounds == 0 && !heard);
  }
  const bool news =
      tellOfSilent(silent, more, Poller::now(), options_.unreachable_after, job.report.unreachable);
  return news ? News::kState : News::kNone;
}

News GrpcProgress::judgeLocked(Job& job, PollRound& round) {
  const TimePoint now = Poller::now();
  News news = News::kNone;
  for (const PollRound::Answer& answer : round.answers()) {
    AgentPeer& peer = *answer.peer;
    if (answer.state) {
      if (job.report.unreachable.erase(answer.endpoint.key) > 0) news = News::kState;
      peer.revision = answer.state->revision();
      const bool often = answer.endpoint.key.index == 0 || peer.revision < job.revision();
      peer.heard(now);
      // If it is the coordinator's first word, others may have to be asked now.
      const bool may_speak = options_.ask_coordinator_only && answer.endpoint.key.index == 0;
      if (may_speak && !peer.answered) job.hurry = true;
      peer.answered = true;
      connecting_.erase(answer.peer);
      peer.skip = often ? 0 : options_.others_every - 1;
      continue;
    }
    if (peer.silent_rounds == 0) peer.failing_since = now;
    peer.why = answer.why;
    // An attempt to connect that is given up, since nothing comes, ends calls as a refusal does.
    const bool given_up = now - peer.connecting_since >= options_.timeout * 3 / 2;
    if (job.credentials && given_up && peer.why.reason == kConnectionFailed)
      peer.why.reason = kNoAnswer;
    peer.refusals = 0;
    const grpc_connectivity_state state = peer.state();
    // Later than for this call it may still come, and for the next one.
    const bool comes = state == GRPC_CHANNEL_CONNECTING || state == GRPC_CHANNEL_READY;
    if (job.credentials && !comes) peer.disconnect();
    const int beyond = ++peer.silent_rounds - kPatience;
    const bool rarely = beyond > 0 && !job.wish.stop_by;
    peer.skip = rarely ? std::min(kMaxSkip, (1 << std::min(beyond, 10)) - 1) : 0;
    helpSilentLocked(round.job().key, job, answer.endpoint, peer, kHelpAfter);
  }
  news = std::max(news, noteSilenceLocked(job));
  job.calm = !job.wish.stop_by && !job.wish.last_word &&
             std::all_of(job.peers.begin(), job.peers.end(), [&](const auto& entry) {
               return entry.second->silent_rounds == 0 && entry.second->revision >= job.revision();
             });
  return news;
}

void GrpcProgress::helpSilentLocked(const JobKey& key, const Job& job, const AgentEndpoint& agent,
                                    AgentPeer& peer, int intervals) {
  const bool long_silent = Poller::now() - peer.silent_since >= intervals * options_.interval;
  if (!long_silent || peer.helped || job.revision() == 0) return;
  peer.helped = true;
  unreached_.push_back({key, agent, job.revision()});
  news_.notify_all();
}

News GrpcProgress::takeLocked(Job& job, const std::vector<PollRound::Answer>& answers) {
  JobReport& report = job.report;
  News news = News::kNone;
  for (const PollRound::Answer& answer : answers) {
    if (!answer.state) continue;
    v1::TaskState& known = report.tasks[answer.endpoint.key];
    const News of_this = newsOf(known, *answer.state);
    known = *answer.state;
    news = std::max({news, of_this, takeHeardLocked(job, known)});
    if (of_this == News::kNone) continue;
    // A later life of the coordinator outweighs an earlier one, whatever is read last.
    if (known.report().has_job() && known.created() >= report.progress_created) {
      report.progress = known.report().job();
      report.progress_created = known.created();
    }
  }
  return news;
}

// What a process says that does not run any more is too old.
News GrpcProgress::takeHeardLocked(Job& job, const v1::TaskState& coordinator) {
  if (!options_.ask_coordinator_only || coordinator.child() != "Running") return News::kNone;
  const TimePoint now = Poller::now();
  News news = News::kNone;
  for (const v1::HeardTask& heard : coordinator.report().heard()) {
    const TaskKey key{heard.id().role(), heard.id().index()};
    const auto task = job.tasks.find(key);
    if (task == job.tasks.end() || task->second.created != heard.created()) continue;
    AgentPeer& peer = *task->second.peer;
    peer.heard(now);
    peer.heard_at = now;
    peer.revision = heard.revision();
    if (job.report.unreachable.erase(key) > 0) news = News::kState;
    v1::TaskState& known = job.report.tasks[key];
    if (known.created() == heard.created() && known.start() >= heard.start()) continue;
    if (known.created() != heard.created()) known.Clear();
    *known.mutable_id() = heard.id();
    known.set_created(heard.created());
    known.set_start(heard.start());
    news = News::kState;
  }
  return news;
}

}  // namespace trainyard::control
