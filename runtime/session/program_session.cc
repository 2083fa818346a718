#include "runtime/session/program_session.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace trainyard::runtime::session {

StatusOr<std::unique_ptr<ProgramSession>> ProgramSession::open(const std::string& path,
                                                               const std::string& program,
                                                               const Cancelled& cancelled) {
  TY_ASSIGN_OR_RETURN(Channel channel, Channel::connect(path));
  std::unique_ptr<ProgramSession> opened(new ProgramSession(std::move(channel), cancelled));
  TY_RETURN_IF_ERROR(opened->channel_.send(Kind::kHello, encode(Hello{.program = program})));
  TY_ASSIGN_OR_RETURN(const std::string body,
                      opened->channel_.receive(Kind::kWelcome, opened->cancelled_));
  TY_ASSIGN_OR_RETURN(opened->welcome_, decodeWelcome(body));
  if (opened->welcome_.protocol != kProtocol) {
    return absl::FailedPreconditionError(
        fmt::format("this library speaks version {} of the session's protocol, the job's runtime "
                    "version {}",
                    kProtocol, opened->welcome_.protocol));
  }
  return opened;
}

Status ProgramSession::declare(Declaration declaration) {
  // As the member will read it: what it would refuse is told here.
  const std::string body = encode(declaration);
  if (const auto readable = decodeDeclaration(body); !readable.ok()) {
    return absl::InvalidArgumentError(
        "a declaration needs samples, and variables with names and sizes of at least 1");
  }
  TY_RETURN_IF_ERROR(order_.declare(declaration));
  TY_RETURN_IF_ERROR(channel_.send(Kind::kDeclare, body));
  TY_ASSIGN_OR_RETURN(const std::string answer, channel_.receive(Kind::kMemory, cancelled_));
  TY_ASSIGN_OR_RETURN(const MemoryPlace place, decodeMemoryPlace(answer));
  TY_ASSIGN_OR_RETURN(SessionMemory memory, SessionMemory::open(declaration, place));
  memory_.emplace(std::move(memory));
  declaration_ = std::move(declaration);
  return absl::OkStatus();
}

StatusOr<TurnMessage> ProgramSession::next() {
  TY_RETURN_IF_ERROR(order_.next());
  clicks_ = {};
  hits_ = -1;
  TY_RETURN_IF_ERROR(channel_.send(Kind::kNext, ""));
  TY_ASSIGN_OR_RETURN(const std::string body, channel_.receive(Kind::kTurn, cancelled_));
  TY_ASSIGN_OR_RETURN(TurnMessage message, decodeTurn(body));
  state_.reset();  // the member has taken it, or given up
  if (message.turn.kind == Turn::Kind::kLoad) {
    TY_ASSIGN_OR_RETURN(StateMemory state, StateMemory::open(message.state));
    state_.emplace(std::move(state));
  }
  order_.begin(message.turn);
  return message;
}

Status ProgramSession::push(std::uint32_t variable) {
  TY_RETURN_IF_ERROR(order_.push(variable));
  return channel_.send(Kind::kPush, encodePush(variable));
}

// As the member will read it: what it would refuse is told here.
Status ProgramSession::sendRows(Kind kind, const std::string& body, const Status& readable) {
  if (!readable.ok() || body.size() > kMostBodyBytes) {
    return absl::InvalidArgumentError(fmt::format(
        "rows: a table that the job does not have, more or fewer values than ids x dim, or more "
        "than {} MiB at a time",
        kMostBodyBytes >> 20));
  }
  return channel_.send(kind, body);
}

Status ProgramSession::lookUp(const LookUp& look_up, std::span<float> rows) {
  TY_RETURN_IF_ERROR(order_.lookUp());
  const std::string body = encode(look_up);
  Status readable = decodeLookUp(body, welcome_.tables).status();
  if (readable.ok() && (rows.size() != look_up.ids.size() * welcome_.tables[look_up.table].dim ||
                        rows.size_bytes() > kMostBodyBytes)) {
    readable = absl::InvalidArgumentError("no room for the rows");
  }
  TY_RETURN_IF_ERROR(sendRows(Kind::kLookUp, body, readable));
  TY_ASSIGN_OR_RETURN(const std::string answer, channel_.receive(Kind::kRows, cancelled_));
  return decodeRows(answer, rows);
}

Status ProgramSession::pushRows(const PushRows& push) {
  TY_RETURN_IF_ERROR(order_.pushRows());
  const std::string body = encode(push);
  return sendRows(Kind::kPushRows, body, decodePushRows(body, welcome_.tables).status());
}

Status ProgramSession::lookAhead(const LookAhead& ahead) {
  TY_RETURN_IF_ERROR(order_.lookAhead());
  const std::string body = encode(ahead);
  return sendRows(Kind::kLookAhead, body, decodeLookAhead(body, welcome_.tables.size()).status());
}

Status ProgramSession::countHits(std::int64_t hits) {
  TY_RETURN_IF_ERROR(order_.countHits(hits));
  hits_ = hits;
  return absl::OkStatus();
}

StatusOr<Outcome> ProgramSession::finish(double loss_sum, std::int32_t samples) {
  TY_RETURN_IF_ERROR(order_.finish());
  TY_RETURN_IF_ERROR(channel_.send(Kind::kFinish, encode(Finish{loss_sum, samples, hits_})));
  TY_ASSIGN_OR_RETURN(const std::string body, channel_.receive(Kind::kOutcome, cancelled_));
  return decodeOutcome(body);
}

StatusOr<Outcome> ProgramSession::sum(double loss_sum, std::int32_t samples) {
  TY_RETURN_IF_ERROR(order_.sum());
  TY_RETURN_IF_ERROR(channel_.send(Kind::kSum, encode(Finish{loss_sum, samples, hits_})));
  TY_ASSIGN_OR_RETURN(const std::string body, channel_.receive(Kind::kSummed, cancelled_));
  TY_ASSIGN_OR_RETURN(Outcome outcome, decodeOutcome(body));
  order_.summed(outcome.complete);
  return outcome;
}

StatusOr<Outcome> ProgramSession::commit() {
  TY_RETURN_IF_ERROR(order_.commit());
  TY_RETURN_IF_ERROR(channel_.send(Kind::kCommit, ""));
  TY_ASSIGN_OR_RETURN(const std::string body, channel_.receive(Kind::kOutcome, cancelled_));
  return decodeOutcome(body);
}

StatusOr<Score> ProgramSession::scoreClicks(std::span<const float> logits,
                                            std::span<const std::uint8_t> labels) {
  TY_RETURN_IF_ERROR(order_.scores());
  TY_ASSIGN_OR_RETURN(const Score score, scoreOfClicks(logits, labels));
  clicks_.add(score);
  return score;
}

Status ProgramSession::evaluated(Score score) {
  TY_RETURN_IF_ERROR(order_.scores());
  if (clicks_.samples > score.samples) {
    return absl::InvalidArgumentError(
        fmt::format("{} clicks of {} samples were scored", clicks_.samples, score.samples));
  }
  score.clicks = std::exchange(clicks_, {}).clicks;
  TY_RETURN_IF_ERROR(order_.evaluated());
  return channel_.send(Kind::kEvaluated, encode(score));
}

Status ProgramSession::save(std::span<const std::byte> state) {
  TY_RETURN_IF_ERROR(order_.save());
  TY_ASSIGN_OR_RETURN(StateMemory memory, StateMemory::create(state.size()));
  std::ranges::copy(state, memory.bytes().begin());
  state_.emplace(std::move(memory));
  return channel_.send(Kind::kSave, encodeSave(state_->place()));
}

StatusOr<std::span<const std::byte>> ProgramSession::state() const {
  if (!order_.loading()) return absl::InvalidArgumentError("no state outside of a turn to load it");
  return state_->bytes();
}

Status ProgramSession::abort(const std::string& why) {
  return channel_.send(Kind::kAbort, encode(absl::AbortedError(why)));
}

}  // namespace trainyard::runtime::session
