#include "runtime/task/by_hand.h"

#include <signal.h>

#include "gmock/gmock.h"
#include "runtime/task/hand_watch.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;

HandFlags sample() {
  HandFlags flags;
  flags.ps_hosts = "a:1,[::1]:2";
  flags.worker_hosts = "b:3, c:4";
  flags.job_name = "worker";
  flags.task_index = 1;
  flags.synthetic_data = 500;
  flags.checkpoint_dir = "/run";
  return flags;
}

TEST(HandOptions, MakeTheMembershipOfTheLists) {
  const auto options = handOptions(sample(), 1'700'000'000'123);
  ASSERT_TRUE(options.ok()) << options.status();
  const v1::Membership& membership = options->membership;
  ASSERT_EQ(membership.tasks_size(), 4);
  EXPECT_EQ(membership.tasks(0).ip(), "a");
  EXPECT_EQ(membership.tasks(0).port(), 1u);
  EXPECT_EQ(membership.tasks(1).ip(), "[::1]");
  EXPECT_EQ(membership.tasks(3).id().role(), v1::ROLE_WORKER);
  EXPECT_EQ(membership.tasks(3).ip(), "c");
  EXPECT_EQ(options->port, 4);
  EXPECT_EQ(options->task_dir, "/run/tasks/worker-1");
  EXPECT_EQ(options->job.spec().worker().replicas(), 2);
}

TEST(HandOptions, ALaterStartIsALaterIncarnation) {
  const auto order = [](UnixMillis now) {
    const auto options = handOptions(sample(), now);
    return std::pair(options->self.created(), options->self.start());
  };
  EXPECT_LT(order(1'700'000'000'122), order(1'700'000'000'123));
  EXPECT_LT(order(1'700'000'000'999), order(1'700'000'001'000));
  EXPECT_GT(order(1'700'000'000'000).second, 0u);
}

TEST(HandOptions, NameTheFlagThatIsWrong) {
  const auto refusal = [](auto change) {
    HandFlags flags = sample();
    change(flags);
    return std::string(handOptions(flags, 1).status().message());
  };
  for (const char* hosts : {"a", "a:", ":1", "a:0", "a:70000", "::1:2", "a:1,,b:2"}) {
    EXPECT_THAT(refusal([&](HandFlags& f) { f.ps_hosts = hosts; }), HasSubstr("is not host:port"))
        << hosts;
  }
  EXPECT_THAT(refusal([](HandFlags& f) { f.task_index = 2; }), HasSubstr("--task_index: 2"));
  EXPECT_THAT(refusal([](HandFlags& f) { f.num_shards = 2; }), HasSubstr("--num_shards"));
  EXPECT_THAT(refusal([](HandFlags& f) { f.synthetic_data = 0; }), HasSubstr("--data_dir"));
}

TEST(HandTraining, MeansWhatTheOldFlagsMeant) {
  HandFlags flags = sample();
  EXPECT_EQ(handTraining(flags, 4)->update().mode(), "Async");
  flags.replicas_to_aggregate = 3;
  EXPECT_EQ(handTraining(flags, 4)->update().aggregate(), 3);
  flags.issync = true;
  EXPECT_EQ(handTraining(flags, 4)->update().mode(), "Sync");
  EXPECT_EQ(handTraining(flags, 4)->update().backup_workers(), 1);
  EXPECT_EQ(handTraining(flags, 3)->update().backup_workers(), 0);
  EXPECT_FALSE(handTraining(flags, 2).ok());
  flags.model = "mlp";
  flags.hidden_units = {5, 6};
  flags.placement = "FixedSize";
  flags.num_shards = 2;
  flags.wire_type = "BFloat16";
  const auto training = handTraining(flags, 4);
  EXPECT_EQ(training->model().hidden(1), 6);
  EXPECT_EQ(training->placement().fixed_size().shards(), 2);
  EXPECT_EQ(training->checkpoint().every_seconds(), 50);
  EXPECT_EQ(training->wire_type(), "BFloat16");
}

// By which the coordinator refuses who was started with others.
TEST(HandTraining, TheWireTypeIsAmongTheSettingsThatAllMustShare) {
  v1::TrainingJob job;
  *job.mutable_spec()->mutable_training() = *handTraining(sample(), 2);
  const std::string wide = jobDigest(job).value();
  job.mutable_spec()->mutable_training()->set_wire_type("BFloat16");
  EXPECT_NE(jobDigest(job).value(), wide);
}

TEST(DerivedToken, IsThatOfTheLists) {
  HandFlags other = sample();
  other.task_index = 0;
  EXPECT_EQ(derivedToken(other), derivedToken(sample()));
  EXPECT_EQ(derivedToken(other).size(), 64u);
  other.worker_hosts = "b:3";
  EXPECT_NE(derivedToken(other), derivedToken(sample()));
}

TEST(ResolveHost, GivesAnAddressOrNamesTheHost) {
  EXPECT_EQ(resolveHost("127.0.0.1").value(), "127.0.0.1");
  EXPECT_EQ(resolveHost("::1").value(), "[::1]");
  EXPECT_THAT(std::string(resolveHost("no such host").status().message()),
              HasSubstr("host no such host: "));
}

TEST(HandWatch, CtrlCStopsTheJobAtPs0AndEndsAWorker) {
  auto signals = SignalWaiter::create({SIGUSR1});
  ASSERT_TRUE(signals.ok());
  HandFlags flags = sample();
  const TaskOptions worker = *handOptions(flags, 1);
  flags.job_name = "ps";
  const TaskOptions ps1 = *handOptions(flags, 1);
  flags.task_index = 0;
  const TaskOptions ps0 = *handOptions(flags, 1);
  FakeClock clock;
  const auto press = [&](HandWatch& watch) {
    ::raise(SIGUSR1);
    return watch.onReport(v1::RuntimeReport());
  };
  HandWatch first(ps0, *signals, clock);
  EXPECT_FALSE(first.onReport(v1::RuntimeReport()).stop_job());
  EXPECT_TRUE(press(first).stop_job());
  EXPECT_TRUE(first.onReport(v1::RuntimeReport()).stop_job()) << "until it has";
  EXPECT_FALSE(first.leaves());
  press(first);
  EXPECT_TRUE(first.leaves());

  HandWatch second(ps1, *signals, clock);
  EXPECT_FALSE(press(second).stop_job());
  EXPECT_FALSE(second.leaves());
  press(second);
  EXPECT_TRUE(second.leaves());

  HandWatch third(worker, *signals, clock);
  press(third);
  EXPECT_TRUE(third.leaves());
}

}  // namespace
}  // namespace trainyard::runtime
