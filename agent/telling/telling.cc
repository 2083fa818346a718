#include "agent/telling/telling.h"

#include <cmath>
#include <string>

#include "base/core/json_depth.h"
#include "base/json/members.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::agent {
namespace {

using Json = nlohmann::json;

constexpr double kMostWhole = 9'007'199'254'740'992;  // 2^53: up to here a double is exact

Status wrong(const char* name, const char* what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", name, what));
}

StatusOr<std::optional<double>> numberOf(const Json& said, const char* name) {
  const Json& value = member(said, name);
  if (value.is_null()) return std::optional<double>();
  if (!value.is_number()) return wrong(name, "is no number");
  const double number = value.get<double>();
  if (!std::isfinite(number)) return wrong(name, "is not finite");
  return std::optional(number);
}

StatusOr<std::optional<double>> amountOf(const Json& said, const char* name) {
  TY_ASSIGN_OR_RETURN(const std::optional<double> number, numberOf(said, name));
  if (number && *number < 0) return wrong(name, "is below zero");
  return number;
}

// Also of 7.0, which some libraries write for a whole number.
template <typename T>
Status takeCount(const Json& said, const char* name, std::optional<T>* count) {
  TY_ASSIGN_OR_RETURN(const std::optional<double> number, amountOf(said, name));
  if (!number) return absl::OkStatus();
  if (*number >= kMostWhole) return wrong(name, "is too large");
  if (*number != std::floor(*number)) return wrong(name, "is no whole number");
  *count = static_cast<T>(*number);
  return absl::OkStatus();
}

}  // namespace

StatusOr<Telling> parseTelling(std::string_view datagram) {
  if (datagram.size() > kMaxTellingBytes) {
    return absl::InvalidArgumentError(fmt::format("more than {} bytes", kMaxTellingBytes));
  }
  if (jsonIsTooDeep(datagram)) return absl::InvalidArgumentError("nested too deeply");
  const Json said = Json::parse(datagram, nullptr, /*allow_exceptions=*/false);
  if (!said.is_object()) return absl::InvalidArgumentError("no JSON object");
  Telling telling;
  TY_RETURN_IF_ERROR(takeCount(said, "step", &telling.step));
  TY_RETURN_IF_ERROR(takeCount(said, "steps", &telling.steps));
  TY_RETURN_IF_ERROR(takeCount(said, "examples", &telling.examples));
  TY_ASSIGN_OR_RETURN(telling.loss, numberOf(said, "loss"));
  TY_ASSIGN_OR_RETURN(telling.accuracy, amountOf(said, "accuracy"));
  TY_ASSIGN_OR_RETURN(telling.epoch, amountOf(said, "epoch"));
  return telling;
}

}  // namespace trainyard::agent
