#include "runtime/transport/transport.h"

#include "base/core/strings.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace trainyard::runtime::transport {
namespace {

// A small operation takes some 10 us where nobody sleeps, and waking alone takes as long.
constexpr Duration kSpin = std::chrono::microseconds(200);
// Where ranks share cores, and offer them to each other meanwhile.
constexpr Duration kYield = std::chrono::microseconds(50);
constexpr char kBlameUrl[] = "trainyard.dev/blamed-rank";
constexpr char kCauseUrl[] = "trainyard.dev/cause";

std::string prefixed(const Wait& wait, const std::string& message) {
  const std::string place = placeOf(wait);
  return place.empty() ? message : place + ": " + message;
}

}  // namespace

Spin spinAmong(std::size_t ranks, double cores) {
  const bool shared = static_cast<double>(ranks) > cores;
  return {.most = shared ? kYield : kSpin, .yields = shared};
}

std::string placeOf(const Wait& wait) {
  if (wait.operation == nullptr) return "";
  return fmt::format("{}, round {}", toString(*wait.operation), wait.round);
}

std::optional<int> blamedRank(const Status& status) {
  const auto payload = status.GetPayload(kBlameUrl);
  if (!payload) return std::nullopt;
  return parseNumber<int>(std::string(*payload));
}

Status withBlamedRank(Status status, int rank) {
  status.SetPayload(kBlameUrl, absl::Cord(std::to_string(rank)));
  return status;
}

Status lostRank(int rank, const Wait& wait, std::string_view how) {
  return withBlamedRank(
      absl::UnavailableError(prefixed(wait, fmt::format("rank {} is lost: {}", rank, how))), rank);
}

Status silentRank(int rank, const Wait& wait, Duration waited) {
  return withBlamedRank(
      absl::DeadlineExceededError(
          prefixed(wait, fmt::format("rank {} was silent for {:.1f} s, the timeout of an operation",
                                     rank, toSeconds(waited)))),
      rank);
}

Status abortedBy(int rank, int blamed, absl::StatusCode cause, std::string_view message) {
  Status status =
      withBlamedRank(absl::AbortedError(fmt::format("rank {} reports: {}", rank, message)), blamed);
  status.SetPayload(kCauseUrl, absl::Cord(fmt::to_string(static_cast<int>(cause))));
  return status;
}

absl::StatusCode causeOf(const Status& status) {
  const auto payload = status.GetPayload(kCauseUrl);
  if (!payload) return status.code();
  const auto code = parseNumber<int>(std::string(*payload));
  return code && *code != 0 ? static_cast<absl::StatusCode>(*code) : status.code();
}

Status unexpectedMessage(int rank, const Wait& wait, const MessageId& expected,
                         std::size_t expected_bytes, const MessageId& got, std::size_t got_bytes) {
  const auto describe = [](const MessageId& id, std::size_t bytes) {
    return fmt::format("{}, part {} of {} bytes", toString(id.operation), id.part, bytes);
  };
  return withBlamedRank(
      absl::FailedPreconditionError(
          prefixed(wait, fmt::format("rank {} sent {}; expected {}", rank, describe(got, got_bytes),
                                     describe(expected, expected_bytes)))),
      rank);
}

std::string toString(const Stall& stall) {
  std::string text =
      fmt::format("{}{}{:.1f} s without rank {}", stall.place, stall.place.empty() ? "" : ": ",
                  toSeconds(stall.waited), stall.waits_for);
  std::vector<int> quiet;
  for (int r = 0; r < static_cast<int>(stall.waiting.size()); ++r) {
    const auto& said = stall.waiting[static_cast<std::size_t>(r)];
    if (r == stall.rank) continue;
    if (said) text += fmt::format("; rank {} waits for {}", r, *said);
    if (!said) quiet.push_back(r);
  }
  if (!quiet.empty()) text += fmt::format("; not heard from: {}", fmt::join(quiet, ", "));
  return text;
}

int blame(int rank, int peer, const std::vector<std::optional<int>>& waiting) {
  std::vector<bool> seen(waiting.size());
  int at = peer;
  while (waiting[static_cast<std::size_t>(at)] && !seen[static_cast<std::size_t>(at)]) {
    seen[static_cast<std::size_t>(at)] = true;
    at = *waiting[static_cast<std::size_t>(at)];
    if (at == rank) return peer;
  }
  return seen[static_cast<std::size_t>(at)] ? peer : at;
}

}  // namespace trainyard::runtime::transport
