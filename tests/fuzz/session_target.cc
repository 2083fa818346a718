// What a program says to its member of a job: messages in any order, whole or damaged, and bytes
// that are none. The input is a list of messages: a byte for the kind (0: what follows is not put
// in a message), two for the length, the body. Whatever it is: the job hears only what the order of
// a session allows, of variables that are trained.
#include <sys/socket.h>

#include "base/core/check.h"
#include "runtime/session/serve.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

using namespace runtime::session;  // NOLINT: all of it

// So much fits into a socket, which nobody reads meanwhile.
constexpr std::size_t kMostInput = 64 << 10;
constexpr int kMostMessages = 64;

const std::vector<SessionTable> kTables{{"user", 2}, {"item", 1}};

// Turns to train and to evaluate in turns; everything is as TurnOrder says.
class WaryHost final : public SessionHost, RowHost {
 public:
  RowHost* rows() override { return this; }
  StatusOr<std::vector<float>> lookUp(const LookUp& look_up) override {
    TY_CHECK(training_ || evaluating_, "rows in a turn");
    return std::vector<float>(look_up.ids.size() * kTables.at(look_up.table).dim);
  }
  void push(const PushRows& push) override {
    TY_CHECK(training_ && !summed_, "gradients of rows in a step");
    TY_CHECK(push.counts.size() == push.ids.size() &&
                 push.sums.size() == push.ids.size() * kTables.at(push.table).dim,
             "each id has its count and its row");
  }
  void lookAhead(LookAhead ahead) override {
    TY_CHECK(training_ && ahead.first >= 0 && ahead.count >= 1, "what comes after a step");
    TY_CHECK(ahead.ids.size() == kTables.size(), "ids of all tables");
  }
  StatusOr<MemoryPlace> declare(const Declaration& declaration) override {
    TY_CHECK(variables_.empty() && !declaration.variables.empty(), "a model, once");
    TY_CHECK(declaration.samples >= 1 && declaration.eval_samples >= 0, "there are samples");
    variables_ = declaration.variables;
    own_update_ = declaration.own_update;
    has_state_ = declaration.has_state;
    for (const DeclaredVariable& variable : variables_)
      TY_CHECK(variable.elements() >= 1, "arrays have elements");
    const auto again = decodeDeclaration(encode(declaration));
    TY_CHECK(again.ok() && *again == declaration, "a declaration can be sent on");
    return MemoryPlace{.pid = 1, .fd = 0, .bytes = 1};
  }
  StatusOr<TurnMessage> next(WaitingProgram& program) override {
    if (has_state_ && turns_ % 2 != 0) {
      TY_ASSIGN_OR_RETURN(const StateMemory state, program.save(turns_));
      TY_RETURN_IF_ERROR(program.load(turns_, state));
    }
    TY_CHECK(!variables_.empty() && !training_ && !summed_ && !evaluating_, "one turn at a time");
    TurnMessage message;
    (++turns_ % 3 == 0 ? evaluating_ : training_) = true;
    if (evaluating_) message.turn.kind = runtime::Turn::Kind::kEvaluate;
    if (training_) message.samples = {3};
    message.turn.samples = 1;
    pushed_.assign(variables_.size(), false);
    return message;
  }
  void push(std::uint32_t variable) override {
    TY_CHECK(training_ && variable < variables_.size() && variables_[variable].trainable &&
                 !pushed_[variable],
             "a gradient of a variable that is trained, once a step");
    pushed_[variable] = true;
  }
  StatusOr<Outcome> finish(const Finish& finish) override {
    TY_CHECK(!own_update_, "an update that the job makes");
    endPass(finish);
    return Outcome{.complete = true};
  }
  StatusOr<Outcome> sum(const Finish& finish) override {
    TY_CHECK(own_update_, "an update that the program makes");
    endPass(finish);
    summed_ = finish.samples % 2 != 0;
    return Outcome{.complete = summed_};
  }
  StatusOr<Outcome> commit() override {
    TY_CHECK(summed_, "of a step that is summed");
    summed_ = false;
    return Outcome{.complete = true};
  }
  void evaluated(const Score& score) override {
    TY_CHECK(evaluating_ && score.hits <= score.samples, "a score that can be");
    evaluating_ = false;
  }
  void abort(std::string_view) override {}

 private:
  void endPass(const Finish& finish) {
    TY_CHECK(training_ && finish.samples >= 0, "the end of a step that was begun");
    for (std::size_t v = 0; v < variables_.size(); ++v)
      TY_CHECK(pushed_[v] == variables_[v].trainable, "with all gradients");
    training_ = false;
  }

  std::vector<DeclaredVariable> variables_;
  bool own_update_ = false;
  bool has_state_ = false;
  std::vector<bool> pushed_;
  bool training_ = false;
  bool summed_ = false;
  bool evaluating_ = false;
  int turns_ = 0;
};

// What the member says is read by the program.
void readAsProgram(std::string_view body) {
  if (const auto turn = decodeTurn(body); turn.ok()) {
    const bool counted = turn->turn.kind != runtime::Turn::Kind::kTrain ||
                         turn->samples.size() == static_cast<std::size_t>(turn->turn.samples);
    TY_CHECK(counted && encode(*turn) == body, "all of a turn counts");
  }
  if (const auto welcome = decodeWelcome(body); welcome.ok())
    TY_CHECK(welcome->protocol != kProtocol || encode(*welcome) == body, "of a welcome too");
  if (const auto place = decodeMemoryPlace(body); place.ok())
    TY_CHECK(place->bytes > 0 && encode(*place) == body, "of a place too");
  if (const auto state = decodeSave(body); state.ok())
    TY_CHECK(encodeSave(*state) == body, "of where a state is too");
  if (const auto outcome = decodeOutcome(body); outcome.ok())
    TY_CHECK(outcome->step >= 0, "steps are counted from 0");
  TY_CHECK(!decodeFailure(body).ok(), "a failure is one");
}

std::string message(Kind kind, const std::string& body) {
  std::string bytes(1, static_cast<char>(kind));
  bytes += static_cast<char>(body.size() & 0xff);
  bytes += static_cast<char>(body.size() >> 8);
  return bytes + body;
}

}  // namespace

void runSession(std::string_view input) {
  Choices choices(input.substr(0, kMostInput));
  int ends[2];
  TY_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "two sockets");
  Channel program{UniqueFd(ends[0])};
  Channel member{UniqueFd(ends[1])};
  for (int i = 0; i < kMostMessages && !choices.empty(); ++i) {
    const std::uint8_t kind = choices.byte();
    const std::size_t low = choices.byte();
    const std::string_view body = choices.take(low | std::size_t{choices.byte()} << 8);
    readAsProgram(body);
    if (kind == 0) {
      TY_CHECK(::send(program.fd(), body.data(), body.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                   static_cast<ssize_t>(body.size()),
               "there is room");
    } else {
      TY_CHECK(program.send(static_cast<Kind>(kind), body).ok(), "there is room");
    }
  }
  ::shutdown(program.fd(), SHUT_WR);
  WaryHost host;
  const Status end = serve(member, {.job = "fuzz", .tables = kTables}, host, {});
  TY_CHECK(!end.ok(), "the host never says that the job is over");
}

std::vector<std::string> sessionSeeds() {
  const Declaration model{
      .samples = 10,
      .eval_samples = 5,
      .variables = {{"w", {2, 3}}, {"mean", {}, runtime::ElementType::kFloat64, false}}};
  const std::string hello = message(Kind::kHello, encode(Hello{.program = "a program"}));
  const std::string declared = hello + message(Kind::kDeclare, encode(model));
  const std::string next = message(Kind::kNext, "");
  const std::string step =
      next + message(Kind::kPush, encodePush(0)) + message(Kind::kFinish, encode(Finish{1.5, 3}));
  const std::string rows = message(Kind::kLookUp, encode(LookUp{0, {7, 9}})) +
                           message(Kind::kPushRows, encode(PushRows{1, {7}, {1}, {1}})) +
                           message(Kind::kLookAhead, encode(LookAhead{2, 2, {{7}, {}}}));
  Declaration own = model;
  own.own_update = true;
  const std::string own_declared = hello + message(Kind::kDeclare, encode(own));
  const std::string summed =
      next + message(Kind::kPush, encodePush(0)) + message(Kind::kSum, encode(Finish{1.5, 3}));
  const std::string commit = message(Kind::kCommit, "");
  const std::string given_up =
      next + message(Kind::kPush, encodePush(0)) + message(Kind::kSum, encode(Finish{1.5, 4}));
  Declaration stateful = model;
  stateful.has_state = true;
  const std::string stateful_declared = hello + message(Kind::kDeclare, encode(stateful));
  const std::string moved = next + message(Kind::kSave, encodeSave({}));
  const float logits[] = {-1, 2};
  const std::uint8_t labels[] = {0, 1};
  const std::string score =
      next + message(Kind::kEvaluated, encode(*scoreOfClicks(logits, labels)));
  return {
      "",
      hello,
      message(Kind::kHello, encode(Hello{.protocol = 9})),
      declared + step + step + score + step,
      declared + rows + step,
      declared + next + rows + message(Kind::kFinish, encode(Finish{1, 1})),
      declared + step + step + next + message(Kind::kLookUp, encode(LookUp{0, {7}})),
      declared + next + message(Kind::kLookUp, encode(LookUp{2, {7}})),
      declared + next + message(Kind::kPushRows, encode(PushRows{0, {7}, {1}, {1}})),
      message(Kind::kWelcome, encode(Welcome{.job = "fuzz", .tables = kTables})),
      own_declared + summed + commit + given_up + score + summed + commit,
      own_declared + summed + next,
      own_declared + given_up + commit,
      own_declared + step,
      stateful_declared + step + moved + next + step,
      stateful_declared + step + moved + moved,
      stateful_declared + step + next + message(Kind::kAbort, encode(absl::AbortedError("no"))),
      stateful_declared + step + next + step,
      message(Kind::kSave, encodeSave({.pid = 1, .fd = 2, .bytes = 64})),
      declared + moved,
      declared + summed,
      declared + next + next,
      declared + next + message(Kind::kPush, encodePush(1)),
      declared + next + message(Kind::kFinish, encode(Finish{1, 1})),
      declared + declared,
      hello + step,
      declared + step + step + next + message(Kind::kPush, encodePush(0)),
      declared + message(Kind::kAbort, encode(absl::AbortedError("train.py:3: KeyError"))),
      hello + message(Kind::kTurn, encode(TurnMessage{})),
      message(Kind::kWelcome, encode(Welcome{.job = "fuzz"})),
      message(Kind::kMemory, encode(MemoryPlace{.pid = 1, .fd = 2, .bytes = 64})),
      message(Kind::kOutcome, encode(Outcome{.complete = true, .step = 3})),
      message(static_cast<Kind>(0), "GET / HTTP/1.1\r\n\r\n"),
  };
}

}  // namespace trainyard::fuzz
