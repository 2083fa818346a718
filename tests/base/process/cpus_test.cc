#include "base/process/cpus.h"

#include <sched.h>

#include <fstream>
#include <thread>

#include "base/process/internal/control_groups.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard {
namespace {

using internal::controlGroups;
using testing::ElementsAre;
using testing::EndsWith;

TEST(Cpus, LimitsOfVersionTwo) {
  struct Row {
    const char* text;
    std::optional<double> cores;
  };
  for (const Row& row :
       {Row{"max 100000\n", std::nullopt}, Row{"150000 100000\n", 1.5}, Row{"200000 100000", 2},
        Row{"5000 50000\n", 0.1}, Row{"100000", std::nullopt}, Row{"", std::nullopt},
        Row{"-1 100000\n", std::nullopt}, Row{"0 100000\n", std::nullopt},
        Row{"100000 0\n", std::nullopt}, Row{"nonsense 5\n", std::nullopt}}) {
    EXPECT_EQ(coresOfCpuMax(row.text), row.cores) << row.text;
  }
}

TEST(Cpus, LimitsOfVersionOne) {
  struct Row {
    const char* quota;
    const char* period;
    std::optional<double> cores;
  };
  for (const Row& row : {Row{"-1\n", "100000\n", std::nullopt}, Row{"250000\n", "100000\n", 2.5},
                         Row{"50000", "100000", 0.5}, Row{"50000\n", "", std::nullopt},
                         Row{"", "100000\n", std::nullopt}, Row{"50000\n", "0\n", std::nullopt}}) {
    EXPECT_EQ(coresOfQuota(row.quota, row.period), row.cores) << row.quota << row.period;
  }
}

std::vector<std::string> foldersOf(const char* text, const char* controller) {
  std::vector<std::string> folders;
  for (const auto& group : controlGroups(text, controller, "/cg")) {
    folders.push_back(std::to_string(group.version) + " " + group.folder.string());
  }
  return folders;
}

TEST(Cpus, GroupsAndThoseAroundThem) {
  EXPECT_THAT(foldersOf("0::/\n", "cpu"), ElementsAre("2 /cg"));
  EXPECT_THAT(foldersOf("0::/pods/one\n", "cpu"),
              ElementsAre("2 /cg/pods/one", "2 /cg/pods", "2 /cg"));
  EXPECT_THAT(foldersOf("0::/../../other\n", "cpu"), ElementsAre("2 /cg/other", "2 /cg"));
  EXPECT_THAT(foldersOf("4:memory:/m\n3:cpu,cpuacct:/a\n2:cpuset:/b\n1:name=systemd:/c\n", "cpu"),
              ElementsAre("1 /cg/cpu/a", "1 /cg/cpu", "1 /cg/cpu,cpuacct/a", "1 /cg/cpu,cpuacct"));
  EXPECT_THAT(foldersOf("7:cpu:/docker/b:c\n", "cpu"),
              ElementsAre("1 /cg/cpu/docker/b:c", "1 /cg/cpu/docker", "1 /cg/cpu"));
  EXPECT_THAT(foldersOf("nonsense\n\n0:\n::\n", "cpu"), ElementsAre());
}

class CpusTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto path = dir_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  AvailableCpus read(int usable) { return availableCpus(usable, dir_.path()); }
  TempDir dir_;
};

TEST_F(CpusTest, WithoutALimitTheUsableCoresCount) {
  EXPECT_EQ(read(4).cores, 4);
  write("proc/self/cgroup", "0::/pods/one\n");
  write("sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
  EXPECT_EQ(read(4).cores, 4);
  EXPECT_EQ(read(4).source, "of this machine");
}

TEST_F(CpusTest, TheTightestLimitAroundTheProcessCounts) {
  write("proc/self/cgroup", "0::/pods/one\n");
  write("sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/pods/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(read(8).cores, 2.5);
  EXPECT_THAT(read(8).source, EndsWith("sys/fs/cgroup/pods"));
  EXPECT_EQ(read(2).cores, 2) << "what the process may run on is less";
  EXPECT_EQ(read(2).source, "of this machine");
}

TEST_F(CpusTest, InAContainerTheRootIsTheGroup) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(read(8).cores, 0.5);
  EXPECT_THAT(read(8).source, EndsWith("sys/fs/cgroup"));
}

// In a container version 1 names the group as the host sees it; what is mounted is its own.
TEST_F(CpusTest, GroupsOfVersionOneAreRead) {
  write("proc/self/cgroup", "11:cpu,cpuacct:/docker/a\n4:memory:/docker/a\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read(8).cores, 2);
  write("sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read(8).cores, 2);
}

TEST(Cpus, UsableAreThoseThatTheThreadMayRunOn) {
  EXPECT_GE(usableCores(), 1);
  int narrowed = 0;
  std::thread([&] {
    const int cpu = ::sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (::sched_setaffinity(0, sizeof(one), &one) == 0) narrowed = usableCores();
  }).join();
  EXPECT_EQ(narrowed, 1);
}

}  // namespace
}  // namespace trainyard
