#include "runtime/session/serve.h"

#include <string>
#include <utility>
#include <vector>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/session/turn_order.h"

namespace trainyard::runtime::session {
namespace {

// One session from its first message to its last.
class Server final : WaitingProgram {
 public:
  Server(Channel& channel, SessionHost& host, const Cancelled& cancelled)
      : channel_(channel), host_(host), cancelled_(cancelled) {}

  Status greet(const Welcome& welcome) {
    TY_ASSIGN_OR_RETURN(const std::string body, channel_.receive(Kind::kHello, cancelled_));
    TY_ASSIGN_OR_RETURN(const Hello hello, decodeHello(body));
    TY_RETURN_IF_ERROR(channel_.send(Kind::kWelcome, encode(welcome)));
    tables_ = welcome.tables;
    if (hello.protocol == kProtocol) return absl::OkStatus();
    return absl::FailedPreconditionError(
        fmt::format("the program speaks version {} of the session's protocol, this is {}",
                    hello.protocol, kProtocol));
  }

  // One message.
  Status take(const Message& message) {
    switch (message.kind) {
      case Kind::kDeclare:
        return declare(message.body);
      case Kind::kNext:
        return next();
      case Kind::kPush:
        return push(message.body);
      case Kind::kLookUp:
        return lookUp(message.body);
      case Kind::kPushRows:
        return pushRows(message.body);
      case Kind::kLookAhead:
        return lookAhead(message.body);
      case Kind::kFinish:
        return finish(message.body);
      case Kind::kSum:
        return sum(message.body);
      case Kind::kCommit:
        return commit();
      case Kind::kEvaluated:
        return evaluated(message.body);
      case Kind::kAbort:
        return abort(message.body);
      default:
        return absl::DataLossError(
            fmt::format("session: a {} from the program", nameOf(message.kind)));
    }
  }

  bool over() const { return order_.over(); }

 private:
  Status declare(std::string_view body) {
    TY_ASSIGN_OR_RETURN(const Declaration declaration, decodeDeclaration(body));
    TY_RETURN_IF_ERROR(order_.declare(declaration));
    variables_ = declaration.variables.size();
    TY_ASSIGN_OR_RETURN(const MemoryPlace place, host_.declare(declaration));
    return channel_.send(Kind::kMemory, encode(place));
  }

  Status next() {
    TY_RETURN_IF_ERROR(order_.next());
    const StatusOr<TurnMessage> turn = host_.next(*this);
    // Not before the host has returned from what it asked for meanwhile.
    if (!given_up_.empty()) return abort(given_up_);
    if (!turn.ok()) return turn.status();
    return tell(*turn);
  }

  Status tell(const TurnMessage& turn) {
    order_.begin(turn.turn);
    return channel_.send(Kind::kTurn, encode(turn));
  }

  // What the program says in a turn that the host has put in.
  StatusOr<std::string> answer(Kind kind) {
    TY_ASSIGN_OR_RETURN(Message message, channel_.receive(cancelled_));
    if (message.kind == kind) return std::move(message.body);
    if (message.kind != Kind::kAbort) {
      return absl::DataLossError(
          fmt::format("session: a {} where a {} should be", nameOf(message.kind), nameOf(kind)));
    }
    given_up_ = std::move(message.body);
    return decodeFailure(given_up_);
  }

  Status awaitNext() {
    TY_RETURN_IF_ERROR(answer(Kind::kNext).status());
    return order_.next();
  }

  StatusOr<StateMemory> save(std::int64_t version) override {
    TY_RETURN_IF_ERROR(tell({.turn = {.kind = Turn::Kind::kSave, .step = version}, .samples = {}}));
    TY_ASSIGN_OR_RETURN(const std::string body, answer(Kind::kSave));
    TY_ASSIGN_OR_RETURN(const MemoryPlace place, decodeSave(body));
    TY_RETURN_IF_ERROR(order_.save());
    TY_ASSIGN_OR_RETURN(StateMemory state, StateMemory::open(place));
    TY_RETURN_IF_ERROR(awaitNext());
    return state;
  }

  Status load(std::int64_t version, const StateMemory& state) override {
    TY_RETURN_IF_ERROR(tell({.turn = {.kind = Turn::Kind::kLoad, .step = version},
                             .samples = {},
                             .state = state.place()}));
    return awaitNext();
  }

  Status push(std::string_view body) {
    TY_ASSIGN_OR_RETURN(const std::uint32_t variable, decodePush(body, variables_));
    TY_RETURN_IF_ERROR(order_.push(variable));
    host_.push(variable);
    return absl::OkStatus();
  }

  // No message names a table where there are none.
  RowHost& rows() { return *host_.rows(); }

  Status lookUp(std::string_view body) {
    TY_ASSIGN_OR_RETURN(const LookUp look_up, decodeLookUp(body, tables_));
    TY_RETURN_IF_ERROR(order_.lookUp());
    TY_ASSIGN_OR_RETURN(const std::vector<float> found, rows().lookUp(look_up));
    return channel_.send(Kind::kRows, encodeRows(found));
  }

  Status pushRows(std::string_view body) {
    TY_ASSIGN_OR_RETURN(const PushRows push, decodePushRows(body, tables_));
    TY_RETURN_IF_ERROR(order_.pushRows());
    rows().push(push);
    return absl::OkStatus();
  }

  Status lookAhead(std::string_view body) {
    TY_ASSIGN_OR_RETURN(LookAhead ahead, decodeLookAhead(body, tables_.size()));
    TY_RETURN_IF_ERROR(order_.lookAhead());
    if (!tables_.empty()) rows().lookAhead(std::move(ahead));
    return absl::OkStatus();
  }

  Status finish(std::string_view body) {
    TY_ASSIGN_OR_RETURN(const Finish finish, decodeFinish(body));
    TY_RETURN_IF_ERROR(order_.finish());
    TY_ASSIGN_OR_RETURN(const Outcome outcome, host_.finish(finish));
    return channel_.send(Kind::kOutcome, encode(outcome));
  }

  Status sum(std::string_view body) {
    TY_ASSIGN_OR_RETURN(const Finish finish, decodeFinish(body));
    TY_RETURN_IF_ERROR(order_.sum());
    TY_ASSIGN_OR_RETURN(const Outcome outcome, host_.sum(finish));
    order_.summed(outcome.complete);
    return channel_.send(Kind::kSummed, encode(outcome));
  }

  Status commit() {
    TY_RETURN_IF_ERROR(order_.commit());
    TY_ASSIGN_OR_RETURN(const Outcome outcome, host_.commit());
    return channel_.send(Kind::kOutcome, encode(outcome));
  }

  Status evaluated(std::string_view body) {
    TY_ASSIGN_OR_RETURN(const Score score, decodeScore(body));
    TY_RETURN_IF_ERROR(order_.evaluated());
    host_.evaluated(score);
    return absl::OkStatus();
  }

  Status abort(std::string_view body) {
    const Status why = decodeFailure(body);
    if (absl::IsAborted(why)) host_.abort(fromAbsl(why.message()));
    return why;
  }

  Channel& channel_;
  SessionHost& host_;
  const Cancelled& cancelled_;
  TurnOrder order_;
  std::string given_up_;  // kAbort's body, while the host asks
  std::size_t variables_ = 0;
  std::vector<SessionTable> tables_;
};

}  // namespace

Status serve(Channel& channel, const Welcome& welcome, SessionHost& host,
             const Cancelled& cancelled) {
  Server server(channel, host, cancelled);
  TY_RETURN_IF_ERROR(server.greet(welcome));
  for (;;) {
    const auto message = channel.receive(cancelled);
    if (absl::IsUnavailable(message.status()) && server.over()) return absl::OkStatus();
    if (!message.ok()) return message.status();
    const Status taken = server.take(*message);
    if (taken.ok()) continue;
    // It may be gone; what happened is told here in any case.
    channel.send(Kind::kFailed, encode(taken)).IgnoreError();
    return taken;
  }
}

}  // namespace trainyard::runtime::session
