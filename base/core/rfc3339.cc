#include "base/core/rfc3339.h"

#include "absl/time/time.h"
#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

std::optional<absl::Time> parse(std::string_view text) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, toAbsl(text), &time, nullptr)) return std::nullopt;
  // Abseil reads its own words for times without end, too.
  if (time == absl::InfinitePast() || time == absl::InfiniteFuture()) return std::nullopt;
  return time;
}

}  // namespace

std::string formatRfc3339(UnixMillis at, int digits) {
  return absl::FormatTime(fmt::format("%Y-%m-%dT%H:%M:%E{}SZ", digits), absl::FromUnixMillis(at),
                          absl::UTCTimeZone());
}

UnixMillis parseRfc3339(std::string_view text) {
  const std::optional<absl::Time> time = parse(text);
  return time ? absl::ToUnixMillis(*time) : 0;
}

std::optional<std::int64_t> parseRfc3339Nanos(std::string_view text) {
  const std::optional<absl::Time> time = parse(text);
  if (!time) return std::nullopt;
  return absl::ToUnixNanos(*time);
}

}  // namespace trainyard
