// What a reflector needs of an apiserver, for one kind of objects.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "nlohmann/json.hpp"

namespace trainyard::control {

struct ListPage {
  std::vector<nlohmann::json> items;
  std::string resource_version;  // of the list as a whole
  std::string continue_token;    // empty on the last page
};

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark };
  Type type = Type::kAdded;
  // In a bookmark nothing but metadata.resourceVersion, and the annotation kInitialEventsEnd after
  // the initial events; what was deleted as it was last.
  nlohmann::json object;
};
inline constexpr std::string_view kInitialEventsEnd = "k8s.io/initial-events-end";

struct WatchRequest {
  std::string resource_version;                // what is newer than this
  Duration timeout = std::chrono::minutes(3);  // when the server is to end it
  std::stop_token stop;
  // First what is there, as events kAdded, then a bookmark that says that this was all, then what
  // is newer ("watch list"). `resource_version` is empty. INVALID_ARGUMENT where the server does
  // not offer that; one that does not know of it sends no such bookmark.
  bool initial_events = false;
};

// Blocking; used by one thread at a time.
class ListWatch {
 public:
  virtual ~ListWatch() = default;
  // OUT_OF_RANGE when the continue token has expired. `limit` 0: everything at once.
  virtual StatusOr<ListPage> list(int limit, std::string_view continue_token,
                                  std::stop_token stop) = 0;
  // OK when the server ended it; OUT_OF_RANGE when resource_version is too old. `on_event` is
  // called on this thread; false ends the watch.
  virtual Status watch(const WatchRequest& request,
                       const std::function<bool(WatchEvent)>& on_event) = 0;
  // How long the server asks to be left alone, by a failure of the two; zero where it does not say.
  virtual Duration retryAfter(const Status& failure) const = 0;
};

}  // namespace trainyard::control
