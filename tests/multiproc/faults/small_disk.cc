#include "tests/multiproc/faults/small_disk.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>

#include "base/process/files.h"
#include "base/process/unique_fd.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

constexpr char kOptions[] = "size=8m,mode=0700";

std::filesystem::path ballastIn(const std::filesystem::path& folder) {
  return folder / "ballast.tmp";
}

// As root, or as the root of a user namespace of its own where the kernel allows that.
bool ownMounts() {
  const auto uid = ::getuid();
  const auto gid = ::getgid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    const auto write = [](const char* file, const std::string& text) {
      const UniqueFd fd(::open(file, O_WRONLY | O_CLOEXEC));
      return fd.valid() &&
             ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    };
    if (!write("/proc/self/setgroups", "deny")) return false;
    if (!write("/proc/self/uid_map", fmt::format("0 {} 1", uid))) return false;
    if (!write("/proc/self/gid_map", fmt::format("0 {} 1", gid))) return false;
  }
  // Nobody else sees what is mounted here.
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

}  // namespace

bool SmallDisk::possible() {
  static const bool possible = ownMounts();
  return possible;
}

SmallDisk::SmallDisk(const std::filesystem::path& folder) : folder_(folder) {
  EXPECT_EQ(::mount("tmpfs", folder_.c_str(), "tmpfs", 0, kOptions), 0) << folder_ << errno;
}

SmallDisk::~SmallDisk() {
  ::umount2(folder_.c_str(), MNT_DETACH);
}

void SmallDisk::fill() {
  const UniqueFd fd(
      ::open(ballastIn(folder_).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd.valid());
  for (std::string block(1 << 16, 'x'); !block.empty();) {
    if (::write(fd.get(), block.data(), block.size()) < 0) block.resize(block.size() / 2);
  }
}

void SmallDisk::makeRoom() {
  std::error_code error;
  EXPECT_TRUE(std::filesystem::remove(ballastIn(folder_), error)) << error.message();
}

}  // namespace trainyard
