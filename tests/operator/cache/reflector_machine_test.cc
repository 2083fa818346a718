#include "operator/cache/reflector_machine.h"

#include "fmt/format.h"
#include "gmock/gmock.h"

namespace trainyard::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using Json = nlohmann::json;
using Machine = ReflectorMachine;

Json versioned(const std::string& name, int version, const std::string& uid = "u") {
  return {
      {"metadata", {{"name", name}, {"uid", uid}, {"resourceVersion", std::to_string(version)}}}};
}

ListPage page(std::vector<Json> items, const std::string& version, const std::string& token = "") {
  return {std::move(items), version, token};
}

const Status kExpired = absl::OutOfRangeError("too old resource version");
const Status kLost = absl::UnavailableError("connection lost");

class MachineTest : public testing::Test {
 protected:
  explicit MachineTest(const ReflectorOptions& options = {}) : machine_(options, store_) {}
  std::string next() {
    const Machine::Action action = machine_.next(now_);
    if (const auto* list = std::get_if<Machine::List>(&action)) {
      return fmt::format("list {} {}", list->limit, list->continue_token);
    }
    if (const auto* watch = std::get_if<Machine::Watch>(&action)) {
      timeout_ = watch->timeout;
      return (watch->initial_events ? "stream " : "watch ") + watch->resource_version;
    }
    wait_ = std::get<Machine::Wait>(action).until - now_;
    return "wait";
  }
  // The wait that comes next, over when this returns.
  double waited() {
    EXPECT_EQ(next(), "wait");
    now_ += wait_;
    return toSeconds(wait_);
  }
  void sync(const std::string& version = "10") {
    ASSERT_EQ(next(), "list 500 ");
    machine_.onPage(page({versioned("a", 5), versioned("b", 6)}, version), now_);
  }
  void end(const Status& status, Duration retry_after = {}) {
    machine_.onWatchEnded(status, retry_after, now_);
  }

  TimePoint now_{std::chrono::hours(1)};
  Duration wait_{};
  Duration timeout_{};
  ObjectStore store_;
  Machine machine_;
};

TEST_F(MachineTest, ListsPagesThenWatchesFromThere) {
  EXPECT_EQ(next(), "list 500 ");
  EXPECT_TRUE(machine_.onPage(page({versioned("a", 5)}, "10", "t1"), now_).empty());
  EXPECT_FALSE(machine_.synced());
  EXPECT_EQ(store_.size(), 0u) << "nobody sees half a list";
  EXPECT_EQ(next(), "list 500 t1");
  EXPECT_EQ(machine_.onPage(page({versioned("b", 6)}, "10"), now_).size(), 2u);
  EXPECT_TRUE(machine_.synced());
  EXPECT_EQ(next(), "watch 10");
}

TEST_F(MachineTest, FollowsEventsAndBookmarks) {
  sync();
  EXPECT_EQ(next(), "watch 10");
  EXPECT_EQ(machine_.onEvent({WatchEvent::Type::kModified, versioned("a", 12)}).size(), 1u);
  now_ += minutes(3);
  end(absl::OkStatus());
  EXPECT_EQ(next(), "watch 12");
  EXPECT_TRUE(machine_.onEvent({WatchEvent::Type::kBookmark, versioned("", 40)}).empty());
  EXPECT_EQ(store_.size(), 2u) << "a bookmark is no object";
  EXPECT_EQ(store_.newestVersion(), 40u);
  EXPECT_EQ(machine_.onEvent({WatchEvent::Type::kDeleted, versioned("b", 41)}).size(), 1u);
  EXPECT_EQ(machine_.onEvent({WatchEvent::Type::kAdded, versioned("c", 42)}).size(), 1u);
  now_ += minutes(3);
  end(absl::OkStatus());
  EXPECT_EQ(next(), "watch 42");
}

TEST_F(MachineTest, AWatchThatWasDroppedGoesOnWhereItWas) {
  sync();
  next();
  machine_.onEvent({WatchEvent::Type::kModified, versioned("a", 12)});
  now_ += seconds(2);
  end(kLost);
  waited();
  EXPECT_EQ(next(), "watch 12") << "no list";
}

TEST_F(MachineTest, AnExpiredVersionListsAgainAndLosesNoDeletion) {
  sync();
  next();
  now_ += minutes(1);
  end(kExpired);
  EXPECT_EQ(next(), "list 500 ");
  const auto changes = machine_.onPage(page({versioned("a", 50)}, "60"), now_);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].key.name, "b");
  EXPECT_EQ(changes[0].after, nullptr);
  EXPECT_EQ(changes[0].before->version(), 6u) << "as it was last";
  EXPECT_EQ(next(), "watch 60");
}

TEST_F(MachineTest, AnExpiredTokenListsInOnePiece) {
  EXPECT_EQ(next(), "list 500 ");
  machine_.onPage(page({versioned("a", 5)}, "10", "t1"), now_);
  EXPECT_EQ(next(), "list 500 t1");
  machine_.onListFailed(kExpired, {}, now_);
  EXPECT_EQ(next(), "list 0 ");
  EXPECT_EQ(machine_.onPage(page({versioned("b", 6)}, "11"), now_).size(), 1u)
      << "the first page does not count any more";
}

TEST_F(MachineTest, AFailedListStartsAnew) {
  next();
  machine_.onPage(page({versioned("a", 5)}, "10", "t1"), now_);
  machine_.onListFailed(kLost, {}, now_);
  waited();
  EXPECT_EQ(next(), "list 500 ");
}

TEST_F(MachineTest, BacksOffWithJitterUpToAMinuteAndForgets) {
  double base = 0.8;
  for (int i = 0; i < 10; ++i) {
    next();
    machine_.onListFailed(kLost, {}, now_);
    const double seconds = waited();
    EXPECT_GE(seconds, base) << i;
    EXPECT_LT(seconds, 2 * base) << i;
    base = std::min(base * 2, 30.0);
  }
  sync();
  next();
  machine_.onEvent({WatchEvent::Type::kModified, versioned("a", 12)});
  now_ += minutes(2) + seconds(1);
  end(kLost);
  EXPECT_LT(waited(), 1.6) << "two quiet minutes later it is the first failure again";
}

TEST_F(MachineTest, WatchesThatAreDroppedAllTheTimeAreBegunAgainSoon) {
  sync();
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(next(), "watch 10");
    now_ += seconds(2);
    end(kLost);
    EXPECT_LT(waited(), 1.7) << i;
  }
}

TEST_F(MachineTest, WaitsAsLongAsTheServerSays) {
  sync();
  next();
  end(absl::UnavailableError("429"), seconds(17));
  EXPECT_EQ(waited(), 17);
  machine_.next(now_);
  end(absl::UnavailableError("429"), milliseconds(1));
  EXPECT_GE(waited(), 1.6);
}

TEST_F(MachineTest, DoesNotAskAgainWithoutAPauseWhenAllEndsAtOnce) {
  sync();
  next();
  end(absl::OkStatus());
  EXPECT_GE(waited(), 0.8);
  next();
  end(kExpired);
  waited();
  EXPECT_EQ(next(), "list 500 ");
}

TEST_F(MachineTest, AFailureThatStaysIsLookedAtByAList) {
  sync();
  next();
  now_ += seconds(30);
  end(absl::PermissionDeniedError("forbidden"));
  waited();
  EXPECT_EQ(next(), "list 500 ");
}

TEST_F(MachineTest, TimeoutsDiffer) {
  sync();
  std::set<Duration> timeouts;
  for (int i = 0; i < 20; ++i) {
    next();
    timeouts.insert(timeout_);
    EXPECT_GE(timeout_, seconds(150));
    EXPECT_LT(timeout_, seconds(300));
    now_ += timeout_;
    end(absl::OkStatus());
  }
  EXPECT_GT(timeouts.size(), 15u);
}

// --- Beginning with a stream

class StreamTest : public MachineTest {
 protected:
  StreamTest() : MachineTest(streaming()) {}
  static ReflectorOptions streaming() {
    ReflectorOptions options;
    options.stream = true;
    return options;
  }
  static Json allIsIn(int version) {
    Json bookmark = {{"metadata", {{"resourceVersion", std::to_string(version)}}}};
    bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"] = "true";
    return bookmark;
  }
  void stream(int version) {
    ASSERT_EQ(next(), "stream ");
    machine_.onEvent({WatchEvent::Type::kAdded, versioned("a", 5)});
    machine_.onEvent({WatchEvent::Type::kBookmark, allIsIn(version)});
    ASSERT_TRUE(machine_.synced());
  }
};

TEST_F(StreamTest, ReplacesTheStoreWhenAllIsInAndGoesOn) {
  ASSERT_EQ(next(), "stream ");
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_TRUE(machine_.onEvent({WatchEvent::Type::kAdded, versioned(name, 5)}).empty());
  }
  EXPECT_TRUE(machine_.onEvent({WatchEvent::Type::kModified, versioned("a", 8)}).empty());
  EXPECT_TRUE(machine_.onEvent({WatchEvent::Type::kDeleted, versioned("b", 9)}).empty());
  EXPECT_TRUE(machine_.onEvent({WatchEvent::Type::kBookmark, versioned("", 9)}).empty());
  EXPECT_FALSE(machine_.synced());
  EXPECT_TRUE(machine_.streaming());
  EXPECT_EQ(store_.size(), 0u);

  EXPECT_EQ(machine_.onEvent({WatchEvent::Type::kBookmark, allIsIn(10)}).size(), 2u);
  EXPECT_TRUE(machine_.synced());
  EXPECT_FALSE(machine_.streaming());
  EXPECT_EQ(objectVersion(*store_.get({"", "a"})), 8u);
  EXPECT_EQ(store_.newestVersion(), 10u);
  EXPECT_EQ(machine_.onEvent({WatchEvent::Type::kAdded, versioned("d", 11)}).size(), 1u);
  end(absl::OkStatus());
  now_ += minutes(3);
  EXPECT_EQ(next(), "watch 11");
}

TEST_F(StreamTest, AnExpiredVersionBeginsANewStreamWhichFindsWhatIsGone) {
  stream(10);
  now_ += minutes(3);
  end(kExpired);
  ASSERT_EQ(next(), "stream ");
  const auto changes = machine_.onEvent({WatchEvent::Type::kBookmark, allIsIn(20)});
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].after, nullptr);
}

TEST_F(StreamTest, ALostStreamBeginsAgain) {
  ASSERT_EQ(next(), "stream ");
  machine_.onEvent({WatchEvent::Type::kAdded, versioned("gone meanwhile", 5)});
  end(kLost);
  waited();
  stream(10);
  EXPECT_EQ(store_.size(), 1u);
}

TEST_F(StreamTest, AServerThatDoesNotOfferItIsListedFromThenOn) {
  ASSERT_EQ(next(), "stream ");
  end(absl::InvalidArgumentError("sendInitialEvents is forbidden for watch"));
  sync();
  now_ += minutes(3);
  end(kExpired);
  EXPECT_EQ(next(), "list 500 ");
}

TEST_F(StreamTest, AServerThatNeverEndsTheInitialEventsIsListed) {
  ASSERT_EQ(next(), "stream ");
  machine_.onEvent({WatchEvent::Type::kAdded, versioned("a", 5)});
  end(absl::DeadlineExceededError("silence"));
  sync();
}

}  // namespace
}  // namespace trainyard::control
