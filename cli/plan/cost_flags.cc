#include "cli/plan/cost_flags.h"

#include "CLI/CLI.hpp"
#include "base/core/strings.h"
#include "base/core/units.h"
#include "base/flags/usage.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr int kMaxMachines = 65'536;
constexpr double kMaxSeconds = 1e6;

std::string checkRate(const std::string& text) {
  if (parseBitRate(text)) return "";
  return fmt::format("\"{}\" is no rate such as 10Gbit, 2.5Gbit or 100Mbit", text);
}

std::string checkCount(const std::string& text) {
  if (parseCount(text)) return "";
  return fmt::format("\"{}\" is no number such as 25.6M or 3274634", text);
}

std::optional<std::pair<int, int>> parseScale(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const auto first = parseNumber<int>(text.substr(0, dots));
  const auto last = parseNumber<int>(text.substr(dots + 2));
  if (!first || !last || *first < 1 || *last < *first || *last > kMaxMachines) return std::nullopt;
  return std::pair{*first, *last};
}

std::string checkScale(const std::string& text) {
  if (parseScale(text)) return "";
  return fmt::format("\"{}\" is no range such as 1..128", text);
}

CLI::Validator secondsFrom(bool zero) {
  const auto check = [zero](const std::string& text) {
    const auto value = parseNumber<double>(text);
    if (value && (zero ? *value >= 0 : *value > 0) && *value <= kMaxSeconds) return std::string();
    return fmt::format("\"{}\" is no number of seconds {} 0", text, zero ? "from" : "above");
  };
  return CLI::Validator(check, "SECONDS");
}

}  // namespace

void addCostFlags(CLI::App& plan, CostFlags& flags) {
  plan.add_option("--model", flags.model, "a built-in model instead of a job");
  plan.add_option("--parameters", flags.parameters, "or any model of so many, such as 25.6M")
      ->check(checkCount);
  plan.add_option("--bandwidth", flags.bandwidth, "of each machine's link, such as 10Gbit")
      ->check(checkRate);
  plan.add_option("--step-seconds", flags.step_seconds, "computing of one step on one machine")
      ->check(secondsFrom(false));
  plan.add_option("--machines", flags.machines, "how best to split so many into workers and ps")
      ->check(wholeNumber(2, kMaxMachines));
  plan.add_option("--scale", flags.scale, "A..B: efficiency for A, 2 A, 4 A ... B machines")
      ->check(checkScale);
  plan.add_option("--duplex", flags.duplex,
                  "full: links carry both ways at once; half: they do not, or push and pull take "
                  "turns")
      ->check(CLI::IsMember({"full", "half"}));
  plan.add_option("--latency-seconds", flags.latency_seconds, "of one message between machines")
      ->check(secondsFrom(true));
}

StatusOr<std::optional<CostQuestion>> costQuestion(const CostFlags& flags,
                                                   double job_step_seconds) {
  const bool compares = flags.machines > 0 || !flags.scale.empty();
  const bool asks = compares || !flags.bandwidth.empty() || flags.step_seconds > 0;
  if (!asks) return std::optional<CostQuestion>();
  CostQuestion question;
  if (flags.bandwidth.empty())
    return absl::InvalidArgumentError("--bandwidth: missing, such as --bandwidth 10Gbit");
  question.input.bits_per_second = *parseBitRate(flags.bandwidth);
  question.input.step_seconds = flags.step_seconds > 0 ? flags.step_seconds : job_step_seconds;
  if (!(question.input.step_seconds > 0))
    return absl::InvalidArgumentError("--step-seconds: missing, such as --step-seconds 0.6");
  question.input.duplex = flags.duplex == "half" ? runtime::Duplex::kHalf : runtime::Duplex::kFull;
  question.input.latency_seconds = flags.latency_seconds;
  if (flags.machines > 0) question.machines = flags.machines;
  if (const auto scale = parseScale(flags.scale))
    question.scale = runtime::doublings(scale->first, scale->second);
  return std::optional(std::move(question));
}

}  // namespace trainyard::cli
