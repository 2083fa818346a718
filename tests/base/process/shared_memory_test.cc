#include "base/process/shared_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "base/process/pipe.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

constexpr std::size_t kBytes = 10'000;

TEST(SharedMemory, BothSeeWhatEitherWrites) {
  auto mine = SharedMemory::create("test", kBytes);
  ASSERT_TRUE(mine.ok()) << mine.status();
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(mine->data()[i], std::byte{0});
  auto theirs = SharedMemory::open(::getpid(), mine->fd(), kBytes);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_NE(theirs->data(), mine->data());
  std::memcpy(mine->data(), "here", 4);
  EXPECT_EQ(std::memcmp(theirs->data(), "here", 4), 0);
  theirs->data()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(mine->data()[kBytes - 1], std::byte{7});
}

TEST(SharedMemory, OutlivesWhoMadeIt) {
  auto made = SharedMemory::create("test", kBytes);
  ASSERT_TRUE(made.ok()) << made.status();
  std::optional<SharedMemory> first(*std::move(made));
  auto second = SharedMemory::open(::getpid(), first->fd(), kBytes);
  ASSERT_TRUE(second.ok()) << second.status();
  first->data()[0] = std::byte{5};
  first.reset();
  EXPECT_EQ(second->data()[0], std::byte{5});
}

TEST(SharedMemory, OpensNothingElse) {
  auto mine = SharedMemory::create("test", kBytes);
  ASSERT_TRUE(mine.ok()) << mine.status();
  EXPECT_EQ(SharedMemory::open(::getpid(), mine->fd(), kBytes + 1).status().code(),
            absl::StatusCode::kUnavailable);
  auto pipe = makePipe();
  ASSERT_TRUE(pipe.ok());
  EXPECT_FALSE(SharedMemory::open(::getpid(), pipe->read_end.get(), kBytes).ok());
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(SharedMemory::open(::getpid(), file.get(), kBytes).ok());
  EXPECT_FALSE(SharedMemory::open(::getpid(), 1 << 20, kBytes).ok());
}

TEST(SharedMemory, SaysWhenThereIsNotEnough) {
  const auto none = SharedMemory::create("test", std::size_t{1} << 52);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(none.status().message()).find("test: "), std::string::npos);
}

// A mapping that became shorter would be a signal at the next look.
TEST(SharedMemory, KeepsItsSize) {
  auto mine = SharedMemory::create("test", kBytes);
  ASSERT_TRUE(mine.ok()) << mine.status();
  EXPECT_NE(::ftruncate(mine->fd(), 0), 0);
  EXPECT_NE(::ftruncate(mine->fd(), 2 * kBytes), 0);
}

}  // namespace
}  // namespace trainyard
