// Memberships in files: JSON as protobuf maps it.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::agent {

// INVALID_ARGUMENT naming `place` when `text` is no membership. Unknown fields are skipped: the
// writer may be newer.
StatusOr<v1::Membership> parseMembership(const std::string& text, const std::string& place);
std::string formatMembership(const v1::Membership& membership);

// Where memberships come from besides pushes. Not thread-safe.
class MembershipSource {
 public:
  virtual ~MembershipSource() = default;
  // What is new since the last call; nothing when nothing is. An error is reported once for each
  // content that has it.
  virtual std::optional<StatusOr<v1::Membership>> poll() = 0;
};

// A file that others replace atomically (also through a symbolic link, as the kubelet does). A
// missing file is not an error: it has not been written yet.
class MembershipFile : public MembershipSource {
 public:
  explicit MembershipFile(std::filesystem::path path) : path_(std::move(path)) {}
  std::optional<StatusOr<v1::Membership>> poll() override;

 private:
  std::filesystem::path path_;
  struct stat seen_ {};
};

}  // namespace trainyard::agent
