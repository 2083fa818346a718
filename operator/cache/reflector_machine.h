// What a reflector does next: a state machine without clock, thread and socket.
//
//   STREAMING  where wished: a watch that begins with what is there
//     -> WATCHING the same watch goes on, when all is in: the store is replaced in one step
//     -> LISTING  for good: the server does not offer this, or never says that all is in
//   LISTING    a page at a time; a failed page starts the list anew, after a while; an expired
//              continue token starts it anew in one piece
//     -> WATCHING when the last page is in: the store is replaced in one step
//   WATCHING   from the newest version seen
//     -> WATCHING  the server ended it: again, from the newest version
//     -> WATCHING  it failed: the same, after a while
//     -> STREAMING or LISTING  the version is too old (410)
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/core/clock.h"
#include "base/core/rng.h"
#include "base/core/status.h"
#include "operator/cache/list_watch.h"
#include "operator/cache/object_store.h"

namespace trainyard::control {

// A watch that ends sooner than this, without an event, is a failure whatever it says: otherwise a
// server that ends each at once is asked without a pause.
inline constexpr Duration kShortWatch = std::chrono::seconds(1);

struct ReflectorOptions {
  // Begin with a stream of what is there instead of pages, where the server offers it: neither side
  // holds all of it at once.
  bool stream = false;
  // Silence within such a stream after which pages are asked for instead.
  Duration stream_silence = std::chrono::seconds(10);
  int page_size = 500;
  // The server ends a watch after a random time between once and twice this, so that not all
  // clients come back at once.
  Duration watch_timeout = std::chrono::seconds(150);
  // Between attempts that failed: doubled each time, each drawn up to twice as long.
  Duration backoff = std::chrono::milliseconds(800);
  Duration max_backoff = std::chrono::seconds(30);
  // After this long without a failure the next one is the first again.
  Duration backoff_reset = std::chrono::minutes(2);
  std::uint64_t seed = 0;  // of the random numbers; different in every process
};

// Not thread-safe. `store` outlives it.
class ReflectorMachine {
 public:
  ReflectorMachine(ReflectorOptions options, ObjectStore& store);

  struct List {
    int limit = 0;  // 0: everything
    std::string continue_token;
  };
  struct Watch {
    std::string resource_version;
    Duration timeout{};
    bool initial_events = false;
  };
  struct Wait {
    TimePoint until;
  };
  using Action = std::variant<List, Watch, Wait>;

  Action next(TimePoint now);

  // What follows tells how the action came out, and gives what changed in the store.
  std::vector<ObjectChange> onPage(ListPage page, TimePoint now);
  void onListFailed(const Status& status, Duration retry_after, TimePoint now);
  std::vector<ObjectChange> onEvent(const WatchEvent& event);
  // `status` OK: the server ended it. DEADLINE_EXCEEDED while streaming(): it was silent.
  void onWatchEnded(const Status& status, Duration retry_after, TimePoint now);

  bool synced() const { return synced_; }
  // In a watch whose initial events are not all in.
  bool streaming() const { return streaming_; }

 private:
  std::vector<ObjectChange> onInitialEvent(const WatchEvent& event);
  void keep(const nlohmann::json& object);
  void onStreamEnded(const Status& status, Duration retry_after, TimePoint now);
  void fail(Duration retry_after, TimePoint now);
  void startList(bool in_pages);

  const ReflectorOptions options_;
  ObjectStore& store_;
  Rng rng_;
  bool listing_ = true;  // or streaming
  bool stream_;          // not LISTING for good
  bool streaming_ = false;
  bool synced_ = false;
  bool in_pages_ = true;
  std::string continue_token_;
  std::map<ObjectKey, PackedPtr> listed_;  // that have come while listing_
  std::string version_;                    // where the next watch starts
  std::optional<TimePoint> wait_until_;
  TimePoint watch_began_;
  bool watch_saw_event_ = false;
  int failures_ = 0;  // in a row
  TimePoint last_failure_;
};

}  // namespace trainyard::control
