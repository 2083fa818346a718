// Objects of one kind as last seen, by namespace and name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"

namespace trainyard::control {

struct ObjectKey {
  std::string ns;
  std::string name;
  auto operator<=>(const ObjectKey&) const = default;
};
ObjectKey objectKey(const nlohmann::json& object);
std::string objectUid(const nlohmann::json& object);
// 0 where it is missing or no number. Numbers of one resource can be compared (KEP-5504).
std::uint64_t objectVersion(const nlohmann::json& object);
std::uint64_t parseResourceVersion(std::string_view text);

// Shared between the store and its readers; never changed.
using ObjectPtr = std::shared_ptr<const nlohmann::json>;

// One object that appeared (before is null), changed, or is gone (after is null). An object that
// was deleted and created again under its name is two changes.
struct ObjectChange {
  ObjectKey key;
  ObjectPtr before;
  ObjectPtr after;
};

// The names under which an object can be found, such as the job that it belongs to. Pure.
using IndexFunction = std::function<std::vector<std::string>(const nlohmann::json&)>;

// Thread-safe. Writing is for one thread, the reflector's.
class ObjectStore {
 public:
  explicit ObjectStore(IndexFunction index = {});

  ObjectPtr get(const ObjectKey& key) const;  // null when there is none
  std::vector<ObjectPtr> all() const;         // sorted by key
  // Those that the index function gives `value` to, sorted by key.
  std::vector<ObjectPtr> byIndex(const std::string& value) const;
  std::size_t size() const;
  // The newest version seen of anything: whoever wrote an object at version v and finds this at v
  // or above sees that write here, or what came after it. Falls only when a list says so.
  std::uint64_t newestVersion() const;

  // What is not in `objects` is gone. Returns what is different from before.
  std::vector<ObjectChange> replace(std::vector<nlohmann::json> objects, std::uint64_t version);
  // An object older than the one held is ignored.
  std::vector<ObjectChange> put(nlohmann::json object);
  std::vector<ObjectChange> erase(const nlohmann::json& object);
  // Nothing changed up to `version`.
  void advance(std::uint64_t version);

 private:
  void setLocked(const ObjectKey& key, ObjectPtr after, std::vector<ObjectChange>* changes);
  void indexLocked(const ObjectKey& key, const ObjectPtr& object, bool add);

  const IndexFunction index_;
  mutable std::mutex mutex_;
  std::map<ObjectKey, ObjectPtr> objects_;
  std::map<std::string, std::set<ObjectKey>> by_index_;
  std::uint64_t version_ = 0;
};

}  // namespace trainyard::control
