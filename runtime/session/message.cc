#include "runtime/session/message.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/core/strings.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/session/body.h"

namespace trainyard::runtime::session {
namespace {

constexpr std::array<std::string_view, kLastKind> kNames = {
    "Hello",  "Welcome", "Declare",   "Memory", "Next",     "Turn",     "Push",
    "Finish", "Outcome", "Evaluated", "Abort",  "Failed",   "Sum",      "Summed",
    "Commit", "Save",    "LookUp",    "Rows",   "PushRows", "LookAhead"};
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
constexpr auto kLastTurn = static_cast<std::uint32_t>(Turn::Kind::kLoad);

bool isShape(const std::vector<std::int64_t>& shape) {
  if (shape.size() > kMostDimensions) return false;
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 1 || size > kMostElements / elements) return false;
    elements *= size;
  }
  return true;
}

std::string describe(const DeclaredVariable& variable) {
  return fmt::format("{} {} [{}]{}", variable.name, nameOf(variable.type),
                     fmt::join(variable.shape, ", "), variable.trainable ? "" : ", not trained");
}

MemoryPlace readPlace(BodyReader& reader) {
  MemoryPlace place;
  place.pid = reader.number<std::int32_t>();
  place.fd = reader.number<std::int32_t>();
  place.bytes = reader.number<std::uint64_t>();
  return place;
}

bool isStatePlace(const MemoryPlace& place) {
  return place.bytes == 0 || (place.pid >= 1 && place.fd >= 0 && place.bytes <= kMostStateBytes);
}

StatusOr<DeclaredVariable> readVariable(BodyReader& reader) {
  DeclaredVariable variable;
  variable.name = reader.text();
  variable.shape = reader.numbers<std::int64_t>();
  const auto type = reader.number<std::uint8_t>();
  variable.trainable = reader.number<std::uint8_t>() != 0;
  if (reader.failed() || variable.name.empty() || type >= kElementTypes ||
      !isShape(variable.shape)) {
    return damaged(Kind::kDeclare);
  }
  variable.type = static_cast<ElementType>(type);
  return variable;
}

}  // namespace

std::string_view nameOf(Kind kind) {
  const auto at = static_cast<std::uint32_t>(kind);
  return at >= 1 && at <= kLastKind ? kNames[at - 1] : "message";
}

Status damaged(Kind kind) {
  return absl::DataLossError(fmt::format("session: a {} that cannot be", nameOf(kind)));
}

std::int64_t DeclaredVariable::elements() const {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

std::string digestOf(const Declaration& declaration) {
  return sha256Hex(encode(declaration));
}

std::string difference(const Declaration& declaration, const Declaration& here) {
  if (declaration.samples != here.samples)
    return fmt::format("{} samples, here {}", declaration.samples, here.samples);
  if (declaration.eval_samples != here.eval_samples) {
    return fmt::format("{} samples to evaluate, here {}", declaration.eval_samples,
                       here.eval_samples);
  }
  if (declaration.own_update != here.own_update) {
    return declaration.own_update ? "an update of the program's own, here the job makes it"
                                  : "an update that the job makes, here the program's own";
  }
  if (declaration.has_state != here.has_state) {
    return declaration.has_state ? "state of the program's own, here none"
                                 : "no state of the program's own, here there is";
  }
  const auto told = [](const Declaration& one, std::size_t v) {
    return v < one.variables.size() ? describe(one.variables[v]) : "none";
  };
  const std::size_t most = std::max(declaration.variables.size(), here.variables.size());
  for (std::size_t v = 0; v < most; ++v) {
    const std::string one = told(declaration, v);
    const std::string other = told(here, v);
    if (one != other) return fmt::format("variable {}: {}, here {}", v, one, other);
  }
  return "";
}

std::string encode(const Hello& hello) {
  return BodyWriter().number(hello.protocol).text(hello.program).take();
}

StatusOr<Hello> decodeHello(std::string_view body) {
  BodyReader reader(body);
  Hello hello;
  hello.protocol = reader.number<std::uint32_t>();
  // What another protocol says behind its number is its own.
  if (hello.protocol != kProtocol && !reader.failed()) return hello;
  hello.program = reader.text();
  if (!reader.whole()) return damaged(Kind::kHello);
  return hello;
}

std::string encode(const Welcome& welcome) {
  return BodyWriter()
      .number(welcome.protocol)
      .text(welcome.job)
      .number(welcome.index)
      .number(welcome.seed)
      .text(encode(std::span(welcome.tables)))
      .take();
}

StatusOr<Welcome> decodeWelcome(std::string_view body) {
  BodyReader reader(body);
  Welcome welcome;
  welcome.protocol = reader.number<std::uint32_t>();
  if (welcome.protocol != kProtocol && !reader.failed()) return welcome;
  welcome.job = reader.text();
  welcome.index = reader.number<std::int32_t>();
  welcome.seed = reader.number<std::uint64_t>();
  TY_ASSIGN_OR_RETURN(welcome.tables, decodeTables(reader.text()));
  if (!reader.whole() || welcome.index < 0) return damaged(Kind::kWelcome);
  return welcome;
}

std::string encode(const Declaration& declaration) {
  BodyWriter writer;
  writer.number(declaration.samples).number(declaration.eval_samples);
  writer.number(static_cast<std::uint8_t>(declaration.own_update));
  writer.number(static_cast<std::uint8_t>(declaration.has_state));
  writer.number(static_cast<std::uint32_t>(declaration.variables.size()));
  for (const DeclaredVariable& variable : declaration.variables) {
    writer.text(variable.name).numbers(std::span(variable.shape));
    writer.number(static_cast<std::uint8_t>(variable.type));
    writer.number(static_cast<std::uint8_t>(variable.trainable));
  }
  return writer.take();
}

StatusOr<Declaration> decodeDeclaration(std::string_view body) {
  BodyReader reader(body);
  Declaration declaration;
  declaration.samples = reader.number<std::int64_t>();
  declaration.eval_samples = reader.number<std::int64_t>();
  declaration.own_update = reader.number<std::uint8_t>() != 0;
  declaration.has_state = reader.number<std::uint8_t>() != 0;
  const auto count = reader.number<std::uint32_t>();
  if (declaration.samples < 1 || declaration.eval_samples < 0 || count < 1 ||
      count > kMostVariables) {
    return damaged(Kind::kDeclare);
  }
  for (std::uint32_t v = 0; v < count; ++v) {
    TY_ASSIGN_OR_RETURN(DeclaredVariable variable, readVariable(reader));
    declaration.variables.push_back(std::move(variable));
  }
  if (!reader.whole()) return damaged(Kind::kDeclare);
  return declaration;
}

std::string encode(const MemoryPlace& place) {
  return BodyWriter().number(place.pid).number(place.fd).number(place.bytes).take();
}

StatusOr<MemoryPlace> decodeMemoryPlace(std::string_view body) {
  BodyReader reader(body);
  const MemoryPlace place = readPlace(reader);
  if (!reader.whole() || place.pid < 1 || place.fd < 0 || place.bytes < 1)
    return damaged(Kind::kMemory);
  return place;
}

std::string encode(const TurnMessage& message) {
  const Turn& turn = message.turn;
  return BodyWriter()
      .number(static_cast<std::uint32_t>(turn.kind))
      .number(turn.step)
      .number(turn.epoch)
      .number(static_cast<std::int32_t>(turn.rank))
      .number(static_cast<std::int32_t>(turn.ranks))
      .number(turn.first_position)
      .number(static_cast<std::int32_t>(turn.samples))
      .number(turn.step_samples)
      .numbers(std::span(message.samples))
      .number(message.state.pid)
      .number(message.state.fd)
      .number(message.state.bytes)
      .take();
}

StatusOr<TurnMessage> decodeTurn(std::string_view body) {
  BodyReader reader(body);
  TurnMessage message;
  Turn& turn = message.turn;
  const auto kind = reader.number<std::uint32_t>();
  turn.step = reader.number<std::int64_t>();
  turn.epoch = reader.number<std::int64_t>();
  turn.rank = reader.number<std::int32_t>();
  turn.ranks = reader.number<std::int32_t>();
  turn.first_position = reader.number<std::int64_t>();
  turn.samples = reader.number<std::int32_t>();
  turn.step_samples = reader.number<std::int64_t>();
  message.samples = reader.numbers<std::int64_t>();
  message.state = readPlace(reader);
  const bool counted = kind != static_cast<std::uint32_t>(Turn::Kind::kTrain) ||
                       message.samples.size() == static_cast<std::size_t>(turn.samples);
  if (!reader.whole() || kind > kLastTurn || turn.step < 0 || turn.samples < 0 || turn.rank < 0 ||
      turn.ranks < 1 || turn.first_position < 0 || !counted || !isStatePlace(message.state)) {
    return damaged(Kind::kTurn);
  }
  turn.kind = static_cast<Turn::Kind>(kind);
  return message;
}

std::string encodePush(std::uint32_t variable) {
  return BodyWriter().number(variable).take();
}

StatusOr<std::uint32_t> decodePush(std::string_view body, std::size_t variables) {
  BodyReader reader(body);
  const auto variable = reader.number<std::uint32_t>();
  if (!reader.whole() || variable >= variables) return damaged(Kind::kPush);
  return variable;
}

std::string encodeSave(const MemoryPlace& state) {
  return encode(state);
}

StatusOr<MemoryPlace> decodeSave(std::string_view body) {
  BodyReader reader(body);
  const MemoryPlace state = readPlace(reader);
  if (!reader.whole() || !isStatePlace(state)) return damaged(Kind::kSave);
  return state;
}

std::string encode(const Finish& finish) {
  return BodyWriter().number(finish.loss_sum).number(finish.samples).number(finish.hits).take();
}

StatusOr<Finish> decodeFinish(std::string_view body) {
  BodyReader reader(body);
  Finish finish;
  finish.loss_sum = reader.number<double>();
  finish.samples = reader.number<std::int32_t>();
  finish.hits = reader.number<std::int64_t>();
  if (!reader.whole() || finish.samples < 0 || finish.hits < -1) return damaged(Kind::kFinish);
  return finish;
}

std::string encode(const Outcome& outcome) {
  return BodyWriter()
      .number(static_cast<std::uint8_t>(outcome.complete))
      .number(static_cast<std::uint8_t>(outcome.too_late))
      .number(outcome.step)
      .number(outcome.loss)
      .number(static_cast<std::uint8_t>(outcome.gradient_norm.has_value()))
      .number(outcome.gradient_norm.value_or(0))
      .take();
}

StatusOr<Outcome> decodeOutcome(std::string_view body) {
  BodyReader reader(body);
  Outcome outcome;
  outcome.complete = reader.number<std::uint8_t>() != 0;
  outcome.too_late = reader.number<std::uint8_t>() != 0;
  outcome.step = reader.number<std::int64_t>();
  outcome.loss = reader.number<double>();
  const bool has_norm = reader.number<std::uint8_t>() != 0;
  const auto norm = reader.number<double>();
  if (!reader.whole() || outcome.step < 0) return damaged(Kind::kOutcome);
  if (has_norm) outcome.gradient_norm = norm;
  return outcome;
}

std::string encode(const Status& failure) {
  return BodyWriter()
      .number(static_cast<std::int32_t>(failure.code()))
      .text(fromAbsl(failure.message()))
      .take();
}

Status decodeFailure(std::string_view body) {
  BodyReader reader(body);
  const auto code = reader.number<std::int32_t>();
  const std::string text = reader.text();
  if (!reader.whole() || code < 1 || code > static_cast<int>(absl::StatusCode::kUnauthenticated))
    return damaged(Kind::kFailed);
  return {static_cast<absl::StatusCode>(code), text};
}

}  // namespace trainyard::runtime::session
