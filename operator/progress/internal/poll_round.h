// One look at the agents of one job: all are asked side by side, then told what they lack.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "grpcpp/grpcpp.h"
#include "operator/cluster/agent_directory.h"
#include "operator/progress/progress_source.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard::control {

// Why an agent that was asked has not answered (TaskWait::reason): nothing came at all, or there is
// no connection.
inline constexpr std::string_view kNoAnswer = "NoAnswer";
inline constexpr std::string_view kConnectionFailed = "ConnectionFailed";

// The connection to one agent, from round to round.
struct AgentPeer {
  // Null: there is none. It is given up when nobody can be connected with: gRPC would try to
  // connect for ever, at some milliseconds of computing each time.
  std::shared_ptr<v1::Agent::Stub> stub;
  std::shared_ptr<grpc::Channel> channel;  // of `stub`
  std::shared_ptr<void> counted;           // while there is one, where connections are counted
  TimePoint connecting_since{};
  bool answered = false;  // once at least

  void disconnect() {
    stub.reset();
    channel.reset();
    counted.reset();
  }
  grpc_connectivity_state state() const {
    return channel == nullptr ? GRPC_CHANNEL_IDLE : channel->GetState(/*try_to_connect=*/false);
  }
  int silent_rounds = 0;              // in which it was asked, in a row
  int skip = 0;                       // rounds until it is asked again
  int refusals = 0;                   // of what it was told, in a row
  TimePoint silent_since{};           // nothing was heard since, also while it was not asked
  TimePoint failing_since{};          // the first of `silent_rounds`
  TaskWait why;                       // the last of them
  bool helped = false;                // during this silence
  std::int64_t revision = 0;          // of the membership that it has, by the newest word
  std::optional<TimePoint> asked_at;  // last
  std::optional<TimePoint> heard_at;  // last word of the job's coordinator on it

  // By its own word or another's.
  void heard(TimePoint now) {
    silent_rounds = 0;
    silent_since = now;
    helped = false;
    skip = 0;
  }
  // Whoever has not been asked yet, since there is no room for one more connection, is not late.
  bool isLate(TimePoint now, Duration after) const {
    return silent_rounds > 0 && now - failing_since >= after;
  }
};

class PollRound;

// A call under way, which is the tag of its event.
class PollCall {
 public:
  explicit PollCall(PollRound& of) : round(of) {}
  virtual ~PollCall() = default;
  PollRound& round;
  grpc::ClientContext context;
  grpc::Status status;
  std::function<void()> take;  // what it brought
};

// Lifecycle: construct, ask(), one onOver() for each call begun, tell(), the same again. Not
// thread-safe; one that has calls under way must not be destroyed.
class PollRound {
 public:
  struct Answer {
    AgentEndpoint endpoint;
    std::shared_ptr<AgentPeer> peer;
    std::shared_ptr<v1::Agent::Stub> stub;  // the peer's, which it may lose meanwhile
    // Nothing: no answer, or another life of the task answered; `why` says which.
    std::optional<v1::TaskState> state;
    TaskWait why = {};
    std::int64_t told = 0;  // revision of the membership that it has taken in this round; 0: none
  };
  struct Job {
    JobKey key;
    std::string uid;
    std::string token;
    std::uint64_t number = 0;  // of the round
    TimePoint began{};
  };

  PollRound(Job job, std::vector<Answer> agents, Duration timeout);

  void ask(grpc::CompletionQueue& queue);
  // Membership to those with an older one; the end to the coordinator as long as it is wished and
  // its outcome is open.
  void tell(grpc::CompletionQueue& queue, const JobWish& wish, TimePoint now);
  // `call` came out of the queue.
  void onOver(PollCall* call);
  // Ends all calls soon; what they bring is nobody's any more, and their end no failure of an
  // agent.
  void cancel();

  std::size_t callsUnderWay() const { return calls_.size(); }
  bool told() const { return told_; }
  const Job& job() const { return job_; }
  std::vector<Answer>& answers() { return answers_; }
  // Agents to whom a newer membership could not be pushed.
  std::vector<AgentEndpoint>& unreached() { return unreached_; }

 private:
  template <typename Reply>
  using Done = std::function<void(const grpc::Status&, Reply&)>;
  // Begins a call; `begin` gives its reader.
  template <typename Reply, typename Begin>
  void call(Begin begin, Done<Reply> done);
  void push(grpc::CompletionQueue& queue, Answer& answer, const v1::Membership& membership);
  void stop(grpc::CompletionQueue& queue, const Answer& answer, Duration left);

  const Job job_;
  const Duration timeout_;
  std::vector<Answer> answers_;
  std::vector<AgentEndpoint> unreached_;
  std::map<PollCall*, std::unique_ptr<PollCall>> calls_;
  bool told_ = false;
  bool cancelled_ = false;
};

}  // namespace trainyard::control
