#include "runtime/client/fork_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/process/unique_fd.h"

namespace trainyard::runtime::client {
namespace {

bool isOpen(const UniqueFd& fd) {
  return ::fcntl(fd.get(), F_GETFD) >= 0;
}

// What `holds` says in a forked child.
bool inChild(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(holds() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

UniqueFd anyFile() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

TEST(ForkGuard, AChildIsAnotherGeneration) {
  const UniqueFd connection = anyFile();
  ClosedInChildren closed;
  closed.add(connection.get());  // the first one makes forks be counted
  const std::uint64_t here = processGeneration();
  EXPECT_TRUE(inChild([&] { return processGeneration() != here; }));
  EXPECT_EQ(processGeneration(), here);
}

TEST(ForkGuard, AChildClosesWhatIsNamedAndNothingElse) {
  const UniqueFd connection = anyFile();
  const UniqueFd file = anyFile();
  ClosedInChildren closed;
  closed.add(connection.get());
  EXPECT_TRUE(inChild([&] { return !isOpen(connection) && isOpen(file); }));
  EXPECT_TRUE(isOpen(connection));
}

TEST(ForkGuard, WhatWasClearedIsLeftOpen) {
  const UniqueFd connection = anyFile();
  ClosedInChildren closed;
  closed.add(connection.get());
  closed.clear();
  EXPECT_TRUE(inChild([&] { return isOpen(connection); }));
}

}  // namespace
}  // namespace trainyard::runtime::client
