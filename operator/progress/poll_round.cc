#include "operator/progress/internal/poll_round.h"

#include <algorithm>

#include "base/core/log.h"
#include "base/rpc/channel.h"
#include "base/rpc/status_map.h"
#include "base/rpc/token.h"
#include "base/security/sha256.h"
#include "fmt/format.h"

namespace trainyard::control {

namespace {

template <typename Reply>
class TypedCall : public PollCall {
 public:
  using PollCall::PollCall;
  Reply reply;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader;
};

std::string describe(std::string_view call, const AgentEndpoint& agent) {
  return fmt::format("{} to {} at {}", call, toString(agent.key), agent.address);
}

// What is wrong between us and an agent, as far as gRPC tells it apart.
std::string_view reasonOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
      return kConnectionFailed;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return kNoAnswer;
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return "TokenRefused";
    default:
      return "OtherAnswer";
  }
}

// An agent may end between its answer and what it is told, as every one does with its task: that
// it refuses is known once it has answered again and refused again.
void noteTold(std::string_view call, const PollRound::Answer& answer, const grpc::Status& status) {
  int& refusals = answer.peer->refusals;
  refusals = status.ok() ? 0 : refusals + 1;
  if (status.ok()) return;
  const std::string failure = fromGrpc(status, describe(call, answer.endpoint)).ToString();
  if (refusals == 2) {
    TY_WARN("{}", failure);
  } else {
    TY_DEBUG("{}", failure);
  }
}

}  // namespace

PollRound::PollRound(Job job, std::vector<Answer> agents, Duration timeout)
    : job_(std::move(job)), timeout_(timeout), answers_(std::move(agents)) {}

template <typename Reply, typename Begin>
void PollRound::call(Begin begin, Done<Reply> done) {
  auto call = std::make_unique<TypedCall<Reply>>(*this);
  TypedCall<Reply>* const raw = call.get();
  setDeadline(raw->context, timeout_);
  addToken(raw->context, job_.token);
  raw->take = [raw, done = std::move(done)] { done(raw->status, raw->reply); };
  calls_.emplace(raw, std::move(call));
  raw->reader = begin(&raw->context);
  raw->reader->Finish(&raw->reply, &raw->status, static_cast<PollCall*>(raw));
}

void PollRound::ask(grpc::CompletionQueue& queue) {
  for (Answer& answer : answers_) {
    call<v1::TaskState>(
        [&](grpc::ClientContext* context) {
          return answer.stub->AsyncGetTask(context, v1::GetTaskRequest(), &queue);
        },
        [&answer](const grpc::Status& status, v1::TaskState& state) {
          if (!status.ok()) {
            const Status failure = fromGrpc(status, describe("GetTask", answer.endpoint));
            TY_DEBUG("{}", failure.ToString());
            answer.why = {std::string(reasonOf(status.error_code())),
                          std::string(failure.message())};
            return;
          }
          // A port that another life, or another task, has taken over meanwhile.
          const AgentEndpoint& agent = answer.endpoint;
          if (state.created() == agent.created && state.id().role() == agent.key.role &&
              state.id().index() == agent.key.index) {
            answer.state = std::move(state);
          } else {
            answer.why = {
                "OtherAnswer",
                fmt::format("at {} answers the agent of another task or life", agent.address)};
          }
        });
  }
}

void PollRound::push(grpc::CompletionQueue& queue, Answer& answer,
                     const v1::Membership& membership) {
  v1::PushMembershipRequest request;
  *request.mutable_membership() = membership;
  request.set_sha256(sha256Hex(std::string_view(membership.SerializeAsString())));
  call<v1::PushMembershipReply>(
      [&](grpc::ClientContext* context) {
        return answer.stub->AsyncPushMembership(context, request, &queue);
      },
      [this, &answer](const grpc::Status& status, v1::PushMembershipReply& reply) {
        noteTold("PushMembership", answer, status);
        if (!status.ok()) unreached_.push_back(answer.endpoint);
        if (status.ok()) answer.told = reply.revision();
      });
}

void PollRound::stop(grpc::CompletionQueue& queue, const Answer& answer, Duration left) {
  v1::StopJobRequest request;
  request.set_reason("suspended");
  request.set_seconds(std::max(toSeconds(left), 0.0));
  call<v1::StopJobReply>(
      [&](grpc::ClientContext* context) {
        return answer.stub->AsyncStopJob(context, request, &queue);
      },
      [&answer](const grpc::Status& status, v1::StopJobReply&) {
        noteTold("StopJob", answer, status);
      });
}

void PollRound::tell(grpc::CompletionQueue& queue, const JobWish& wish, TimePoint now) {
  told_ = true;
  for (Answer& answer : answers_) {
    if (!answer.state) continue;
    if (wish.membership && answer.state->revision() < wish.membership->revision()) {
      push(queue, answer, *wish.membership);
    }
    const v1::RuntimeReport& report = answer.state->report();
    if (wish.stop_by && report.has_job() && report.job().outcome().empty())
      stop(queue, answer, *wish.stop_by - now);
  }
}

void PollRound::onOver(PollCall* call) {
  const auto own = calls_.extract(call);
  if (!cancelled_) call->take();
}

void PollRound::cancel() {
  cancelled_ = true;
  for (const auto& [call, own] : calls_) call->context.TryCancel();
}

}  // namespace trainyard::control
