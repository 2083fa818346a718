#include "base/process/memory.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard {
namespace {

using testing::HasSubstr;

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() {
    write("proc/meminfo",
          "MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:   5000 kB\nCached: 1 kB\n");
  }
  void write(const std::string& name, const std::string& text) {
    const auto path = dir_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  AvailableMemory read() {
    const auto memory = availableMemory(dir_.path());
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory.ok() ? *memory : AvailableMemory();
  }
  TempDir dir_;
};

TEST_F(MemoryTest, WithoutGroupsTheMachineDecides) {
  const AvailableMemory memory = read();
  EXPECT_EQ(memory.bytes, 5000 * 1024);
  EXPECT_EQ(memory.limit, 8000 * 1024);
  EXPECT_EQ(memory.source, "this machine");
}

TEST_F(MemoryTest, TheTightestGroupAroundTheProcessCounts) {
  write("proc/self/cgroup", "0::/pods/one\n");
  write("sys/fs/cgroup/pods/one/memory.max", "max\n");
  write("sys/fs/cgroup/pods/one/memory.current", "900000\n");
  write("sys/fs/cgroup/pods/memory.max", "3000000\n");
  write("sys/fs/cgroup/pods/memory.current", "2500000\n");
  write("sys/fs/cgroup/pods/memory.stat", "anon 1500000\nfile 1000000\nfile_mapped 7\n");
  const AvailableMemory memory = read();
  EXPECT_EQ(memory.bytes, 3000000 - 2500000 + 1000000);
  EXPECT_EQ(memory.limit, 3000000);
  EXPECT_THAT(memory.source, HasSubstr("sys/fs/cgroup/pods"));
}

TEST_F(MemoryTest, InAContainerTheRootIsTheGroup) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "2000000\n");
  write("sys/fs/cgroup/memory.current", "1200000\n");
  EXPECT_EQ(read().bytes, 800000);
}

TEST_F(MemoryTest, GroupsOfVersionOneAreRead) {
  write("proc/self/cgroup", "11:cpu,cpuacct:/a\n4:memory:/docker/b\n0::/\n");
  write("sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes", "4000000\n");
  write("sys/fs/cgroup/memory/docker/b/memory.usage_in_bytes", "3999000\n");
  write("sys/fs/cgroup/memory/docker/b/memory.stat", "cache 5\ntotal_cache 2000\n");
  EXPECT_EQ(read().bytes, 3000);
}

TEST_F(MemoryTest, MoreCacheThanUsageInAGroupWithoutALimitTakesNothingAway) {
  write("proc/self/cgroup", "4:memory:/\n");
  const std::int64_t machine = read().bytes;
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "4847140000\n");
  write("sys/fs/cgroup/memory/memory.stat", "cache 5\ntotal_cache 4847149056\n");
  EXPECT_GT(machine, 0);
  EXPECT_EQ(read().bytes, machine);
}

TEST_F(MemoryTest, AMachineThatSaysNothingIsAnError) {
  write("proc/meminfo", "MemTotal: 8000 kB\n");
  EXPECT_THAT(std::string(availableMemory(dir_.path()).status().message()),
              HasSubstr("meminfo: no MemAvailable"));
}

TEST(AvailableMemory, OfThisMachineIsReadable) {
  const auto memory = availableMemory();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_GT(memory->bytes, 0);
  EXPECT_LE(memory->bytes, memory->limit);
}

TEST(CheckMemory, NamesWhatNeedsHowMuch) {
  const AvailableMemory memory{2'000'000'000, 8'000'000'000, "this machine"};
  EXPECT_TRUE(checkMemory("worker-0: mlp", 2'000'000'000, "weights 2 GB", memory).ok());
  const Status status = checkMemory("worker-0: mlp", 3'000'000'000, "weights 3 GB", memory);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()),
            "worker-0: mlp needs at least 3 GB of memory (weights 3 GB), 2 GB of 8 GB are "
            "available (this machine)");
  EXPECT_EQ(failureClass(status), FailureClass::kRetry);
  EXPECT_EQ(failureClass(checkMemory("mlp", 9'000'000'000, "", memory)), FailureClass::kPermanent);
}

}  // namespace
}  // namespace trainyard
