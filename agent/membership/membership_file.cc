#include "agent/membership/membership_file.h"

#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "google/protobuf/util/json_util.h"

namespace trainyard::agent {
namespace {

constexpr std::size_t kMaxBytes = 8 << 20;  // 4096 tasks of each role fit many times

bool sameFile(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

StatusOr<v1::Membership> parseMembership(const std::string& text, const std::string& place) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::Membership membership;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &membership, options);
  if (!parsed.ok()) {
    return invalidInput(place, fmt::format("expected a membership in JSON: {}",
                                           splitFirst(parsed.message().ToString(), '\n').first));
  }
  return membership;
}

std::string formatMembership(const v1::Membership& membership) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  // Cannot fail: the message holds no Any.
  (void)google::protobuf::util::MessageToJsonString(membership, &text, options);
  return text;
}

std::optional<StatusOr<v1::Membership>> MembershipFile::poll() {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0 || sameFile(now, seen_)) return std::nullopt;
  const StatusOr<std::string> text = readFile(path_, kMaxBytes);
  if (!text.ok()) {
    if (absl::IsNotFound(text.status())) return std::nullopt;
    seen_ = now;
    return text.status();
  }
  seen_ = now;
  return parseMembership(*text, path_.native());
}

}  // namespace trainyard::agent
