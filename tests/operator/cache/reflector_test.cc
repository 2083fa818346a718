// The reflector's thread, on a source that is told what to say.
#include "operator/cache/reflector.h"

#include <deque>

#include "fmt/format.h"
#include "gmock/gmock.h"

namespace trainyard::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Json = nlohmann::json;

Json listed(const std::string& name, int version) {
  return {
      {"metadata", {{"name", name}, {"uid", name}, {"resourceVersion", std::to_string(version)}}}};
}

// A list of what is there, and watches that last until they are told to end.
class FakeSource : public ListWatch {
 public:
  StatusOr<ListPage> list(int, std::string_view, std::stop_token) override {
    const std::lock_guard lock(mutex_);
    if (!list_failure.ok()) return list_failure;
    return ListPage{items, "100", ""};
  }
  Status watch(const WatchRequest& request,
               const std::function<bool(WatchEvent)>& on_event) override {
    std::unique_lock lock(mutex_);
    if (request.initial_events) {
      for (const Json& item : items) on_event({WatchEvent::Type::kAdded, item});
      if (ends_initial_events) {
        Json end = {{"metadata", {{"resourceVersion", "100"}}}};
        end["metadata"]["annotations"][std::string(kInitialEventsEnd)] = "true";
        on_event({WatchEvent::Type::kBookmark, end});
      }
    }
    for (;;) {
      changed_.wait(lock, request.stop, [this] { return !events_.empty() || end_; });
      if (request.stop.stop_requested()) return absl::CancelledError("stopped");
      if (end_) return *std::exchange(end_, std::nullopt);
      WatchEvent event = std::move(events_.front());
      events_.pop_front();
      lock.unlock();
      if (!on_event(std::move(event))) return absl::OkStatus();
      lock.lock();
    }
  }
  Duration retryAfter(const Status&) const override { return Duration::zero(); }

  void say(WatchEvent::Type type, Json object) {
    const std::lock_guard lock(mutex_);
    events_.push_back({type, std::move(object)});
    changed_.notify_all();
  }
  void end(Status status, std::vector<Json> now_there) {
    const std::lock_guard lock(mutex_);
    end_ = std::move(status);
    items = std::move(now_there);
    changed_.notify_all();
  }

  std::vector<Json> items;
  Status list_failure;
  bool ends_initial_events = true;

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<WatchEvent> events_;
  std::optional<Status> end_;
};

// Collects what the callbacks say.
class Heard {
 public:
  void add(const std::string& what) {
    const std::lock_guard lock(mutex_);
    all_.push_back(what);
    changed_.notify_all();
  }
  bool waitFor(const std::string& what) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(
        lock, seconds(30), [&] { return std::find(all_.begin(), all_.end(), what) != all_.end(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> all_;
};

class ReflectorTest : public testing::Test {
 protected:
  ReflectorOptions quick() {
    ReflectorOptions options;
    options.backoff = milliseconds(5);
    options.max_backoff = milliseconds(20);
    return options;
  }
  ReflectorCallbacks callbacks() {
    return {
        {},
        [this](const std::vector<ObjectChange>& changes) {
          for (const ObjectChange& change : changes) {
            heard_.add(change.key.name + (change.after ? fmt::format(" {}", change.after->version())
                                                       : std::string(" gone")));
          }
        },
        [this](const Status& status) { heard_.add(std::string(status.message())); }};
  }

  FakeSource source_;
  Heard heard_;
};

TEST_F(ReflectorTest, FollowsItsSource) {
  source_.items = {listed("a", 5), listed("b", 6)};
  source_.items[0]["metadata"]["managedFields"] = Json::array();
  Reflector reflector("things", source_, systemClock(), quick(), callbacks());
  EXPECT_FALSE(reflector.hasSynced());
  reflector.start();
  EXPECT_TRUE(reflector.waitForSync(seconds(30)).ok());
  EXPECT_TRUE(reflector.hasSynced());
  EXPECT_EQ(reflector.store().size(), 2u);
  EXPECT_FALSE((*reflector.store().get({"", "a"}))["metadata"].contains("managedFields"));

  source_.say(WatchEvent::Type::kModified, listed("a", 101));
  EXPECT_TRUE(heard_.waitFor("a 101"));
  EXPECT_EQ(reflector.store().newestVersion(), 101u);
  source_.say(WatchEvent::Type::kDeleted, listed("b", 102));
  EXPECT_TRUE(heard_.waitFor("b gone"));

  source_.end(absl::OutOfRangeError("expired"), {listed("c", 103)});
  EXPECT_TRUE(heard_.waitFor("expired"));
  EXPECT_TRUE(heard_.waitFor("a gone"));
  EXPECT_TRUE(heard_.waitFor("c 103"));
  reflector.stop();
  const ReflectorCounts counts = reflector.counts();
  EXPECT_EQ(counts.lists, 2u);
  EXPECT_GE(counts.watches, 1u);
  EXPECT_EQ(counts.events, 2u);
  EXPECT_EQ(counts.failures, 1u);
}

TEST_F(ReflectorTest, StreamsWhatIsThere) {
  source_.items = {listed("a", 5), listed("b", 6)};
  source_.list_failure = absl::InternalError("nobody lists");
  ReflectorOptions options = quick();
  options.stream = true;
  ReflectorCallbacks trimming = callbacks();
  trimming.trim = [](Json& item) { item["metadata"].erase("annotations"); };
  Reflector reflector("things", source_, systemClock(), options, trimming);
  reflector.start();
  ASSERT_TRUE(reflector.waitForSync(seconds(30)).ok());
  EXPECT_EQ(reflector.store().size(), 2u);
  source_.say(WatchEvent::Type::kModified, listed("a", 101));
  EXPECT_TRUE(heard_.waitFor("a 101"));
  reflector.stop();
  EXPECT_EQ(reflector.counts().lists, 1u);
  EXPECT_EQ(reflector.counts().items, 2u);
  EXPECT_EQ(reflector.counts().failures, 0u);
  EXPECT_EQ(reflector.counts().last_version, 101u);
}

TEST_F(ReflectorTest, ListsWhereAStreamNeverSaysThatAllIsIn) {
  source_.items = {listed("a", 5)};
  source_.ends_initial_events = false;
  ReflectorOptions options = quick();
  options.stream = true;
  options.stream_silence = milliseconds(20);
  Reflector reflector("things", source_, systemClock(), options, callbacks());
  reflector.start();
  ASSERT_TRUE(reflector.waitForSync(seconds(30)).ok());
  EXPECT_EQ(reflector.store().size(), 1u);
  source_.say(WatchEvent::Type::kModified, listed("a", 101));
  EXPECT_TRUE(heard_.waitFor("a 101"));
  reflector.stop();
  EXPECT_EQ(reflector.counts().failures, 1u);
  EXPECT_EQ(reflector.counts().lists, 1u);
}

TEST_F(ReflectorTest, SaysWhyItHasNoList) {
  source_.list_failure = absl::PermissionDeniedError("pods is forbidden");
  Reflector reflector("pods", source_, systemClock(), quick(), callbacks());
  reflector.start();
  EXPECT_TRUE(heard_.waitFor("pods is forbidden"));
  const Status status = reflector.waitForSync(milliseconds(50));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("pods: no list"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("forbidden"));
}

TEST_F(ReflectorTest, StopsInAWatchAndInAWait) {
  {
    Reflector watching("things", source_, systemClock(), quick(), callbacks());
    watching.start();
    EXPECT_TRUE(watching.waitForSync(seconds(30)).ok());
  }
  source_.list_failure = absl::UnavailableError("away");
  ReflectorOptions slow;
  slow.backoff = seconds(3000);
  slow.max_backoff = seconds(3000);
  Reflector waiting("things", source_, systemClock(), slow, callbacks());
  waiting.start();
  EXPECT_TRUE(heard_.waitFor("away"));
  waiting.stop();
  Reflector unused("things", source_, systemClock(), quick(), callbacks());
}

}  // namespace
}  // namespace trainyard::control
