// What a readiness probe is told, and for what it waits.
#include <thread>

#include "agent/service/task_hub.h"
#include "gtest/gtest.h"

namespace trainyard::agent {
namespace {

constexpr Duration kLong = std::chrono::seconds(60);
constexpr Duration kShort = std::chrono::milliseconds(1);

class ProbeTest : public testing::Test {
 protected:
  static TaskIdentity self(bool foreign) {
    TaskIdentity self{.job = {.name = "demo", .ns = "", .uid = "uid-1"}, .id = {}, .created = 4};
    self.id.set_role(v1::ROLE_WORKER);
    self.foreign = foreign;
    return self;
  }
  void child(const std::string& how, int exit_code = 0) {
    ChildView view;
    view.start = 1;
    view.child = how;
    view.last_exit_code = exit_code;
    hub_.setChild(view);
  }
  void report(bool ready) {
    v1::RuntimeReport report;
    report.set_job_uid("uid-1");
    *report.mutable_id() = self(false).id;
    report.mutable_incarnation()->set_created(4);
    report.mutable_incarnation()->set_start(1);
    report.set_ready(ready);
    EXPECT_TRUE(hub_.report(report).ok());
  }
  // Whether a probe that waits until `happens` has been called is told that the task is ready.
  bool toldAfter(const std::function<void()>& happens) {
    bool told = false;
    std::thread probe([&] { told = hub_.awaitReady(kLong); });
    happens();
    probe.join();
    return told;
  }

  MembershipStore store_{"uid-1"};
  TaskMetrics metrics_{self(false)};
  TaskHub hub_{self(false), store_, metrics_, [] {}};
};

TEST_F(ProbeTest, WaitsForTheProgramsWord) {
  EXPECT_FALSE(hub_.awaitReady(kShort));
  child("Running");
  report(false);
  EXPECT_FALSE(hub_.awaitReady(kShort));
  EXPECT_TRUE(toldAfter([this] { report(true); }));
  EXPECT_TRUE(hub_.awaitReady(kShort));
}

TEST_F(ProbeTest, OneOfTheUsersOwnIsReadyAsItRuns) {
  TaskMetrics metrics(self(true));
  TaskHub hub(self(true), store_, metrics, [] {});
  EXPECT_FALSE(hub.awaitReady(kShort));
  ChildView view;
  view.child = "Running";
  std::thread starter([&] { hub.setChild(view); });
  EXPECT_TRUE(hub.awaitReady(kLong));
  starter.join();
}

TEST_F(ProbeTest, WhoHasEndedWellIsNotStarting) {
  child("Running");
  EXPECT_TRUE(toldAfter([this] { child("Exited"); }));
}

TEST_F(ProbeTest, WhoHasBeenReadyIsNotWaitedFor) {
  child("Running");
  report(true);
  child("Exited", 1);
  EXPECT_FALSE(hub_.awaitReady(kLong));
  child("Running");
  report(false);
  EXPECT_FALSE(hub_.awaitReady(kLong));
}

TEST_F(ProbeTest, TheAgentsEndEndsTheWait) {
  EXPECT_TRUE(toldAfter([this] { hub_.endWaits(); }));
}

}  // namespace
}  // namespace trainyard::agent
