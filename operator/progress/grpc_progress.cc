#include "operator/progress/grpc_progress.h"

#include <algorithm>
#include <set>

#include "base/core/log.h"
#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/status_map.h"
#include "base/rpc/token.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "google/protobuf/util/message_differencer.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::control {

using google::protobuf::util::MessageDifferencer;

// An agent that has not answered for so long is helped to its membership in another way. One that
// starts needs a few.
constexpr int kSilentRounds = 10;

struct GrpcProgress::Peer {
  Peer(const std::string& address, const std::optional<AgentTls>& tls)
      : stub(v1::Agent::NewStub(
            tls ? openSecureChannel(address, {tls->ca, tls->cert, tls->key}, tls->server_name)
                : openChannel(address))),
        key(tls ? tls->key : "") {}
  std::unique_ptr<v1::Agent::Stub> stub;
  std::string key;  // of ours
  int silent_rounds = 0;
};

struct GrpcProgress::Answer {
  AgentEndpoint endpoint;
  std::shared_ptr<Peer> peer;
  std::optional<v1::TaskState> state;  // nothing: no answer, or another life of the task answered
};

GrpcProgress::GrpcProgress(AgentDirectory& directory, GrpcProgressOptions options)
    : directory_(directory), options_(options) {}

GrpcProgress::~GrpcProgress() {
  stop();
}

void GrpcProgress::start() {
  thread_ = std::thread([this] { loop(); });
}

void GrpcProgress::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void GrpcProgress::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::vector<JobKey> keys;
    for (const auto& [key, job] : jobs_) keys.push_back(key);
    hurry_ = false;
    for (const JobKey& key : keys) {
      if (stopping_) return;
      lock.unlock();
      const Status polled = pollOnce(key);
      if (!polled.ok()) TY_DEBUG("poll {}: {}", toString(key), polled.ToString());
      lock.lock();
    }
    wake_.wait_for(lock, options_.interval, [this] { return stopping_ || hurry_; });
  }
}

void GrpcProgress::watch(std::function<void(const JobKey&)> changed) {
  const std::lock_guard lock(mutex_);
  changed_ = std::move(changed);
}

JobReport GrpcProgress::newest(const JobKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(key);
  return it == jobs_.end() ? JobReport{} : it->second.report;
}

void GrpcProgress::follow(const JobKey& key, const std::string& uid, const JobWish& wish) {
  const std::lock_guard lock(mutex_);
  Job& job = jobs_[key];
  if (job.uid != uid) job = Job{uid, {}, {}};
  const auto revisionOf = [](const JobWish& w) {
    return w.membership ? w.membership->revision() : 0;
  };
  if (job.wish.stop != wish.stop || revisionOf(job.wish) != revisionOf(wish)) {
    hurry_ = true;
    wake_.notify_all();
  }
  job.wish = wish;
}

void GrpcProgress::forget(const JobKey& key) {
  const std::lock_guard lock(mutex_);
  jobs_.erase(key);
}

Status GrpcProgress::pollOnce(const JobKey& key) {
  const std::lock_guard one_round(poll_mutex_);
  std::string uid;
  {
    const std::lock_guard lock(mutex_);
    const auto it = jobs_.find(key);
    if (it == jobs_.end()) {
      dropPeersBut({}, key);
      return absl::NotFoundError(fmt::format("{} is not followed", toString(key)));
    }
    uid = it->second.uid;
  }
  TY_ASSIGN_OR_RETURN(const std::vector<AgentEndpoint> agents, directory_.agents(key));
  TY_ASSIGN_OR_RETURN(const std::string token, directory_.token(key));
  TY_ASSIGN_OR_RETURN(const std::optional<AgentTls> tls, directory_.tls(key));
  const std::vector<Answer> answers = askAll(agents, token, tls);
  dropPeersBut(agents, key);
  const bool news = take(key, uid, answers);
  std::function<void(const JobKey&)> changed;
  JobWish wish;
  {
    const std::lock_guard lock(mutex_);
    const auto it = jobs_.find(key);
    if (it == jobs_.end() || it->second.uid != uid) return absl::OkStatus();
    wish = it->second.wish;
    if (news) changed = changed_;
  }
  tellAll(key, answers, wish, token);
  if (changed) changed(key);
  return absl::OkStatus();
}

std::vector<GrpcProgress::Answer> GrpcProgress::askAll(const std::vector<AgentEndpoint>& agents,
                                                       const std::string& token,
                                                       const std::optional<AgentTls>& tls) {
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::TaskState>> reader;
    v1::TaskState state;
    grpc::Status status;
  };
  std::vector<Answer> answers;
  std::vector<std::unique_ptr<Call>> calls;
  grpc::CompletionQueue queue;
  for (const AgentEndpoint& agent : agents) {
    answers.push_back({agent, peerAt(agent.address, tls), std::nullopt});
    auto call = std::make_unique<Call>();
    setDeadline(call->context, options_.timeout);
    addToken(call->context, token);
    call->reader =
        answers.back().peer->stub->AsyncGetTask(&call->context, v1::GetTaskRequest(), &queue);
    call->reader->Finish(&call->state, &call->status, call.get());
    calls.push_back(std::move(call));
  }
  queue.Shutdown();  // Next ends when all calls have, and each has a deadline
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const AgentEndpoint& agent = agents[i];
    if (!calls[i]->status.ok()) {
      TY_DEBUG("{}", fromGrpc(calls[i]->status, fmt::format("GetTask of {} at {}",
                                                            toString(agent.key), agent.address))
                         .ToString());
      continue;
    }
    // A port that another life, or another task, has taken over meanwhile.
    const v1::TaskState& state = calls[i]->state;
    if (state.created() != agent.created || state.id().role() != agent.key.role ||
        state.id().index() != agent.key.index) {
      continue;
    }
    answers[i].state = std::move(calls[i]->state);
  }
  return answers;
}

void GrpcProgress::tellAll(const JobKey& key, const std::vector<Answer>& answers,
                           const JobWish& wish, const std::string& token) {
  for (const Answer& answer : answers) {
    if (!answer.state) {
      const bool silent = ++answer.peer->silent_rounds == kSilentRounds;
      if (silent && wish.membership) {
        directory_.pushFailed(key, answer.endpoint, wish.membership->revision());
      }
      continue;
    }
    answer.peer->silent_rounds = 0;
    const auto name = [&answer](std::string_view call) {
      return fmt::format("{} to {} at {}", call, toString(answer.endpoint.key),
                         answer.endpoint.address);
    };
    if (wish.membership && answer.state->revision() < wish.membership->revision()) {
      grpc::ClientContext context;
      setDeadline(context, options_.timeout);
      addToken(context, token);
      v1::PushMembershipRequest request;
      *request.mutable_membership() = *wish.membership;
      request.set_sha256(sha256Hex(std::string_view(wish.membership->SerializeAsString())));
      v1::PushMembershipReply reply;
      const grpc::Status status = answer.peer->stub->PushMembership(&context, request, &reply);
      if (!status.ok()) {
        TY_WARN("{}", fromGrpc(status, name("PushMembership")).ToString());
        directory_.pushFailed(key, answer.endpoint, wish.membership->revision());
      }
    }
    const v1::RuntimeReport& report = answer.state->report();
    if (wish.stop && report.has_job() && report.job().outcome().empty()) {
      grpc::ClientContext context;
      setDeadline(context, options_.timeout);
      addToken(context, token);
      v1::StopJobRequest request;
      request.set_reason("suspended");
      v1::StopJobReply reply;
      const grpc::Status status = answer.peer->stub->StopJob(&context, request, &reply);
      if (!status.ok()) TY_WARN("{}", fromGrpc(status, name("StopJob")).ToString());
    }
  }
}

bool GrpcProgress::take(const JobKey& key, const std::string& uid,
                        const std::vector<Answer>& answers) {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(key);
  if (it == jobs_.end() || it->second.uid != uid) return false;
  JobReport& report = it->second.report;
  bool news = false;
  for (const Answer& answer : answers) {
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

std::shared_ptr<GrpcProgress::Peer> GrpcProgress::peerAt(const std::string& address,
                                                         const std::optional<AgentTls>& tls) {
  std::shared_ptr<Peer>& peer = peers_[address];
  // Another job may get the address of one that is over, before we have heard of either.
  const std::string key = tls ? tls->key : "";
  if (peer == nullptr || peer->key != key) peer = std::make_shared<Peer>(address, tls);
  return peer;
}

void GrpcProgress::dropPeersBut(const std::vector<AgentEndpoint>& agents, const JobKey& key) {
  std::vector<std::string> now;
  for (const AgentEndpoint& agent : agents) now.push_back(agent.address);
  for (const std::string& address : addresses_[key]) {
    if (std::find(now.begin(), now.end(), address) == now.end()) peers_.erase(address);
  }
  addresses_[key] = now;
  if (now.empty()) addresses_.erase(key);
}

}  // namespace trainyard::control
