// Objects of one kind as last seen, by namespace and name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "operator/cache/packed_object.h"

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

// A reader's copy; never changed.
using ObjectPtr = std::shared_ptr<const nlohmann::json>;

// One object that appeared (before is null), changed, or is gone (after is null). An object that
// was deleted and created again under its name is two changes.
struct ObjectChange {
  ObjectKey key;
  PackedPtr before;
  PackedPtr after;
};

// Objects are held packed: what reads them makes a copy. Thread-safe. Writing is for one thread,
// the reflector's.
class ObjectStore {
 public:
  explicit ObjectStore(DigestFunction digest = {});

  PackedPtr find(const ObjectKey& key) const;  // null when there is none
  ObjectPtr get(const ObjectKey& key) const;   // the same, unpacked
  std::vector<PackedPtr> all() const;          // sorted by key
  // Those that have this name, and not also the name `but`, sorted by key.
  std::vector<PackedPtr> byName(const std::string& name,
                                const std::optional<std::string>& but = std::nullopt) const;
  std::size_t size() const;
  // The newest version seen of anything: whoever wrote an object at version v and finds this at v
  // or above sees that write here, or what came after it. Falls only when a list says so.
  std::uint64_t newestVersion() const;

  // As the store holds it.
  PackedPtr pack(const nlohmann::json& object) const;
  // What is not in `objects` is gone. Returns what is different from before.
  std::vector<ObjectChange> replace(std::map<ObjectKey, PackedPtr> objects, std::uint64_t version);
  // An object older than the one held is ignored.
  std::vector<ObjectChange> put(const nlohmann::json& object);
  std::vector<ObjectChange> erase(const nlohmann::json& object);
  // Nothing changed up to `version`.
  void advance(std::uint64_t version);

 private:
  void setLocked(const ObjectKey& key, PackedPtr after, std::vector<ObjectChange>* changes);
  void indexLocked(const ObjectKey& key, const PackedPtr& object, bool add);

  const DigestFunction digest_;
  mutable std::mutex mutex_;
  std::map<ObjectKey, PackedPtr> objects_;
  std::map<std::string, std::set<ObjectKey>> by_name_;
  std::uint64_t version_ = 0;
};

}  // namespace trainyard::control
