// The elector's thread, on a record in memory.
#include "operator/lease/leader_elector.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "gmock/gmock.h"

namespace trainyard::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class MemoryStore : public LeaseStore {
 public:
  StatusOr<LeaseRecord> read(Duration) override {
    const std::lock_guard lock(mutex_);
    if (down_) return absl::UnavailableError("down");
    if (!exists_) return absl::NotFoundError("no lease");
    return record_;
  }
  StatusOr<LeaseRecord> create(const LeaseRecord& record, Duration) override {
    const std::lock_guard lock(mutex_);
    if (down_) return absl::UnavailableError("down");
    if (exists_) return absl::AlreadyExistsError("there");
    exists_ = true;
    return writeLocked(record);
  }
  StatusOr<LeaseRecord> update(const LeaseRecord& record, Duration) override {
    const std::lock_guard lock(mutex_);
    if (down_) return absl::UnavailableError("down");
    if (record.resource_version != record_.resource_version) {
      return absl::FailedPreconditionError("modified");
    }
    return writeLocked(record);
  }
  void setDown(bool down) {
    const std::lock_guard lock(mutex_);
    down_ = down;
  }
  std::string holder() {
    const std::lock_guard lock(mutex_);
    return record_.holder;
  }

 private:
  StatusOr<LeaseRecord> writeLocked(const LeaseRecord& record) {
    record_ = record;
    record_.resource_version = std::to_string(++version_);
    return record_;
  }

  std::mutex mutex_;
  bool down_ = false;
  bool exists_ = false;
  LeaseRecord record_;
  int version_ = 0;
};

LeaderOptions quick(const std::string& identity) {
  LeaderOptions options;
  options.identity = identity;
  options.lease_duration = seconds(4);
  options.renew_deadline = seconds(3);
  options.retry_period = milliseconds(20);
  return options;
}

template <typename Condition>
bool eventually(Condition condition) {
  const TimePoint end = systemClock().now() + seconds(30);
  while (!condition()) {
    if (systemClock().now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(LeaderElector, LeadsAndHandsOver) {
  MemoryStore store;
  std::atomic<int> started{0}, lost{0};
  std::atomic<bool> saw_first{false};
  LeaderElector first(quick("first"), store, systemClock(),
                      {[&] { ++started; }, [&](const std::string&) { ++lost; }, {}});
  LeaderElector second(quick("second"), store, systemClock(),
                       {{}, {}, [&](const std::string& who) { saw_first = who == "first"; }});
  ASSERT_TRUE(first.start().ok());
  ASSERT_TRUE(eventually([&] { return first.holds(); }));
  EXPECT_GT(first.holdsUntil(), systemClock().now());
  ASSERT_TRUE(second.start().ok());
  ASSERT_TRUE(eventually([&] { return saw_first.load(); }));
  EXPECT_FALSE(second.holds());
  first.stop();
  EXPECT_FALSE(first.holds());
  EXPECT_TRUE(eventually([&] { return second.holds(); }));
  EXPECT_EQ(store.holder(), "second");
  EXPECT_EQ(started, 1);
  EXPECT_EQ(lost, 0) << "giving back is no loss";
  second.stop();
  EXPECT_EQ(store.holder(), "");
}

TEST(LeaderElector, SaysOnceThatItHasLost) {
  MemoryStore store;
  std::atomic<int> lost{0};
  LeaderElector elector(quick("a"), store, systemClock(),
                        {{}, [&](const std::string&) { ++lost; }, {}});
  ASSERT_TRUE(elector.start().ok());
  ASSERT_TRUE(eventually([&] { return elector.holds(); }));
  store.setDown(true);
  ASSERT_TRUE(eventually([&] { return lost.load() == 1; }));
  EXPECT_FALSE(elector.holds());
  store.setDown(false);
  elector.stop();
  EXPECT_EQ(lost, 1);
  EXPECT_EQ(store.holder(), "a") << "what we do not hold is not released";
}

TEST(LeaderElector, RefusesWrongOptions) {
  MemoryStore store;
  LeaderOptions options = quick("a");
  options.renew_deadline = seconds(9);
  LeaderElector elector(options, store, systemClock(), {});
  EXPECT_EQ(elector.start().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(elector.holds());
}

// A process that was stopped wakes after its lease: the first thing that it can ask must say no,
// before any thread of the elector has run.
TEST(LeaderElector, APausedProcessDoesNotLeadWhenItWakes) {
  const pid_t child = ::fork();
  if (child == 0) {
    MemoryStore store;
    LeaderElector elector(quick("a"), store, systemClock(), {});
    if (!elector.start().ok() || !eventually([&] { return elector.holds(); })) ::_exit(2);
    const TimePoint before = systemClock().now();
    ::raise(SIGSTOP);
    const bool holds = elector.holds();
    const bool long_enough = systemClock().now() - before >= seconds(3);
    elector.stop();
    ::_exit(!long_enough ? 3 : holds ? 4 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, milliseconds(3200), [] { return false; });  // past its renew deadline
  ::kill(child, SIGCONT);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace trainyard::control
