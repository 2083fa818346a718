#include "operator/lease/leader_machine.h"

#include <map>

#include "base/core/rng.h"
#include "fmt/format.h"
#include "gmock/gmock.h"

namespace trainyard::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

LeaderOptions optionsOf(const std::string& identity) {
  LeaderOptions options;
  options.identity = identity;
  return options;
}

// The record as the apiserver keeps it.
class Record {
 public:
  StatusOr<LeaseRecord> read() const {
    if (!exists_) return absl::NotFoundError("no lease");
    return record_;
  }
  StatusOr<LeaseRecord> write(const LeaseRecord& wanted, bool create) {
    if (create && exists_) return absl::AlreadyExistsError("there");
    if (!create && !exists_) return absl::NotFoundError("no lease");
    if (!create && wanted.resource_version != record_.resource_version) {
      return absl::FailedPreconditionError("modified");
    }
    record_ = wanted;
    record_.resource_version = std::to_string(++version_);
    exists_ = true;
    return record_;
  }
  void remove() { exists_ = false; }
  void touch() { record_.resource_version = std::to_string(++version_); }
  const LeaseRecord& now() const { return record_; }

 private:
  bool exists_ = false;
  LeaseRecord record_;
  int version_ = 0;
};

class LeaderMachineTest : public testing::Test {
 protected:
  // One step of `machine`; what it was.
  std::string step(LeaderMachine& machine) {
    const auto action = machine.next(now_, unix_);
    if (const auto* wait = std::get_if<LeaderMachine::Wait>(&action)) {
      return fmt::format("wait {:.1f}", toSeconds(wait->until - now_));
    }
    if (const auto* lost = std::get_if<LeaderMachine::Lost>(&action)) return "lost " + lost->why;
    if (std::holds_alternative<LeaderMachine::Read>(action)) {
      machine.onRead(down_ ? StatusOr<LeaseRecord>(absl::UnavailableError("down")) : record_.read(),
                     now_);
      return "read";
    }
    const auto* create = std::get_if<LeaderMachine::Create>(&action);
    const LeaseRecord wanted =
        create ? create->record : std::get<LeaderMachine::Update>(action).record;
    StatusOr<LeaseRecord> result = absl::UnavailableError("down");
    if (!down_) result = record_.write(wanted, create != nullptr);
    if (reply_lost_) result = absl::DeadlineExceededError("no answer");
    const TimePoint began = now_;
    pass(write_takes_);
    machine.onWritten(result, began, now_);
    return create ? "create" : "update";
  }
  // Steps until it waits or has lost; what was done.
  std::string settle(LeaderMachine& machine) {
    std::string all;
    for (int i = 0; i < 10; ++i) {
      const std::string one = step(machine);
      all += (all.empty() ? "" : ", ") + one;
      if (one.starts_with("wait") || one.starts_with("lost")) break;
    }
    return all;
  }
  void pass(Duration time) {
    now_ += time;
    unix_ += std::chrono::duration_cast<milliseconds>(time).count();
  }
  bool leads(const LeaderMachine& machine) const {
    const auto until = machine.leadsUntil();
    return until && now_ < *until;
  }

  TimePoint now_{std::chrono::hours(1)};
  UnixMillis unix_ = 1'700'000'000'000;
  Record record_;
  bool down_ = false;
  bool reply_lost_ = false;
  Duration write_takes_{};
  LeaderMachine a_{optionsOf("a")};
  LeaderMachine b_{optionsOf("b")};
};

TEST_F(LeaderMachineTest, TheFirstCreatesAndRenews) {
  EXPECT_EQ(settle(a_), "read, create, wait 2.0");
  EXPECT_TRUE(leads(a_));
  EXPECT_EQ(record_.now().holder, "a");
  EXPECT_EQ(record_.now().duration_seconds, 15);
  EXPECT_EQ(record_.now().transitions, 0);
  const UnixMillis acquired = record_.now().acquired;
  pass(seconds(2));
  EXPECT_EQ(settle(a_), "update, wait 2.0") << "one request for a renewal";
  EXPECT_EQ(record_.now().acquired, acquired);
  EXPECT_EQ(record_.now().renewed, unix_);
}

TEST_F(LeaderMachineTest, TheSecondWaitsUntilNobodyRenews) {
  settle(a_);
  EXPECT_EQ(settle(b_), "read, wait 2.0");
  for (int i = 0; i < 20; ++i) {
    pass(seconds(2));
    EXPECT_EQ(settle(a_), "update, wait 2.0");
    EXPECT_EQ(settle(b_), "read, wait 2.0");
  }
  EXPECT_EQ(b_.observedHolder(), "a");
  Duration alone{};
  while (!leads(b_)) {
    pass(seconds(2));
    alone += seconds(2);
    settle(b_);
  }
  EXPECT_EQ(alone, seconds(16)) << "15 s after what it saw last";
  EXPECT_EQ(record_.now().holder, "b");
  EXPECT_EQ(record_.now().transitions, 1);
  EXPECT_THAT(settle(a_), HasSubstr("lost")) << "who was paused learns it before it writes";
}

TEST_F(LeaderMachineTest, AClockThatIsWrongMattersNothing) {
  settle(a_);
  unix_ += 1'000'000'000;
  EXPECT_EQ(settle(b_), "read, wait 2.0");
  pass(seconds(14));
  EXPECT_EQ(settle(b_), "read, wait 2.0");
  EXPECT_FALSE(leads(b_));
}

TEST_F(LeaderMachineTest, LosesWhenItCannotRenewAndNeverLeadsAgain) {
  settle(a_);
  down_ = true;
  for (int i = 0; i < 4; ++i) {
    pass(seconds(2));
    EXPECT_THAT(settle(a_), HasSubstr("wait"));
    EXPECT_TRUE(leads(a_));
  }
  pass(milliseconds(1999));
  EXPECT_TRUE(leads(a_));
  pass(milliseconds(1));
  EXPECT_FALSE(leads(a_));
  down_ = false;
  EXPECT_EQ(settle(a_), "lost the lease was not renewed within 10.0 s");
  EXPECT_EQ(a_.release(unix_), std::nullopt);
  pass(seconds(100));
  EXPECT_THAT(settle(a_), HasSubstr("lost"));
}

TEST_F(LeaderMachineTest, ARenewalThatTakesTooLongIsNone) {
  settle(a_);
  pass(seconds(9));
  write_takes_ = seconds(2);
  EXPECT_THAT(settle(a_), HasSubstr("update, lost")) << "somebody saw that we did not lead";
}

TEST_F(LeaderMachineTest, CountsFromTheBeginOfARenewal) {
  write_takes_ = seconds(3);
  EXPECT_EQ(settle(a_), "read, create, wait 2.0");
  EXPECT_EQ(*a_.leadsUntil() - now_, seconds(7));
}

TEST_F(LeaderMachineTest, AReplyThatWasLostIsFoundOut) {
  reply_lost_ = true;
  EXPECT_EQ(settle(a_), "read, create, wait 2.0");
  EXPECT_FALSE(leads(a_));
  reply_lost_ = false;
  pass(seconds(2));
  EXPECT_EQ(settle(a_), "read, update, wait 2.0");
  EXPECT_TRUE(leads(a_));
  EXPECT_EQ(record_.now().transitions, 0);
  reply_lost_ = true;
  pass(seconds(2));
  settle(a_);
  reply_lost_ = false;
  pass(seconds(2));
  EXPECT_EQ(settle(a_), "read, update, wait 2.0");
}

TEST_F(LeaderMachineTest, SomebodyElseInTheRecordEndsIt) {
  settle(a_);
  LeaseRecord stolen = record_.now();
  stolen.holder = "thief";
  ASSERT_TRUE(record_.write(stolen, false).ok());
  pass(seconds(2));
  EXPECT_EQ(settle(a_), "update, read, lost thief has the lease");
}

TEST_F(LeaderMachineTest, LabelsAndDeletionOfTheRecordDoNot) {
  settle(a_);
  record_.touch();
  pass(seconds(2));
  EXPECT_EQ(settle(a_), "update, read, update, wait 2.0");
  record_.remove();
  pass(seconds(2));
  EXPECT_EQ(settle(a_), "update, read, create, wait 2.0");
  EXPECT_TRUE(leads(a_));

  settle(b_);
  pass(seconds(14));
  record_.touch();
  settle(b_);
  pass(seconds(2));
  settle(b_);
  EXPECT_TRUE(leads(b_)) << "labels are no renewal";
}

TEST_F(LeaderMachineTest, AReleasedLeaseIsTakenAtOnce) {
  settle(a_);
  settle(b_);
  const auto released = a_.release(unix_);
  ASSERT_TRUE(released.has_value());
  EXPECT_GT(released->duration_seconds, 0);
  ASSERT_TRUE(record_.write(*released, false).ok());
  pass(seconds(2));
  EXPECT_EQ(settle(b_), "read, update, wait 2.0");
  EXPECT_EQ(record_.now().transitions, 1);
}

TEST_F(LeaderMachineTest, OfTwoAtOnceOneWins) {
  step(a_);
  step(b_);
  EXPECT_EQ(step(a_), "create");
  EXPECT_EQ(step(b_), "create");
  EXPECT_TRUE(leads(a_));
  EXPECT_FALSE(leads(b_));
}

// Any number of failures, pauses and lost replies: never two at once.
TEST_F(LeaderMachineTest, NeverTwo) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    record_ = {};
    std::map<int, LeaderMachine> machines;
    std::map<int, TimePoint> paused_until;
    int reborn = 0, terms = 0;
    std::string leader;
    for (int i = 0; i < 3; ++i) machines.emplace(i, optionsOf(fmt::format("{}-{}", i, reborn)));
    for (int t = 0; t < 600; ++t) {
      pass(milliseconds(rng.below(600)));
      down_ = rng.below(10) == 0;
      reply_lost_ = rng.below(10) == 0;
      write_takes_ = rng.below(8) == 0 ? Duration(seconds(rng.below(5))) : Duration::zero();
      const int who = static_cast<int>(rng.below(3));
      if (rng.below(60) == 0) paused_until[who] = now_ + seconds(rng.below(40));
      if (now_ < paused_until[who]) continue;
      if (step(machines.at(who)).starts_with("lost")) {
        machines.erase(who);
        machines.emplace(who, optionsOf(fmt::format("{}-{}", who, ++reborn)));
      }
      int leading = 0;
      for (const auto& [index, machine] : machines) leading += leads(machine);
      ASSERT_LE(leading, 1) << "seed " << seed << " step " << t;
      if (record_.now().holder != leader) ++terms;
      leader = record_.now().holder;
    }
    EXPECT_GT(terms, 0);
  }
}

TEST(LeaderOptionsTest, AreChecked) {
  EXPECT_TRUE(validate(optionsOf("a")).ok());
  EXPECT_FALSE(validate(optionsOf("")).ok());
  LeaderOptions options = optionsOf("a");
  options.renew_deadline = options.lease_duration;
  EXPECT_THAT(std::string(validate(options).message()), HasSubstr("15.0, 15.0, 2.0 s"));
  options = optionsOf("a");
  options.retry_period = Duration::zero();
  EXPECT_FALSE(validate(options).ok());
}

}  // namespace
}  // namespace trainyard::control
