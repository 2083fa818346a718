#include "operator/cache/object_store.h"

#include <algorithm>
#include <utility>

#include "base/core/strings.h"

namespace trainyard::control {

namespace {

using Json = nlohmann::json;

// metadata.KEY as text; "" where there is none.
std::string metadataText(const Json& object, const char* key) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return {};
  const auto it = metadata->find(key);
  return it != metadata->end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace

ObjectKey objectKey(const Json& object) {
  return {metadataText(object, "namespace"), metadataText(object, "name")};
}

std::string objectUid(const Json& object) {
  return metadataText(object, "uid");
}

std::uint64_t objectVersion(const Json& object) {
  return parseResourceVersion(metadataText(object, "resourceVersion"));
}

std::uint64_t parseResourceVersion(std::string_view text) {
  return parseNumber<std::uint64_t>(text).value_or(0);
}

ObjectStore::ObjectStore(DigestFunction digest) : digest_(std::move(digest)) {}

PackedPtr ObjectStore::find(const ObjectKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = objects_.find(key);
  return it == objects_.end() ? nullptr : it->second;
}

ObjectPtr ObjectStore::get(const ObjectKey& key) const {
  const PackedPtr found = find(key);
  return found == nullptr ? nullptr : std::make_shared<const Json>(found->unpack());
}

std::vector<PackedPtr> ObjectStore::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<PackedPtr> result;
  result.reserve(objects_.size());
  for (const auto& [key, object] : objects_) result.push_back(object);
  return result;
}

std::vector<PackedPtr> ObjectStore::byName(const std::string& name,
                                           const std::optional<std::string>& but) const {
  const std::lock_guard lock(mutex_);
  std::vector<PackedPtr> result;
  const auto keys = by_name_.find(name);
  if (keys == by_name_.end()) return result;
  const auto others = but ? by_name_.find(*but) : by_name_.end();
  for (const ObjectKey& key : keys->second) {
    const bool left_out = others != by_name_.end() && others->second.contains(key);
    if (!left_out) result.push_back(objects_.at(key));
  }
  return result;
}

std::size_t ObjectStore::size() const {
  const std::lock_guard lock(mutex_);
  return objects_.size();
}

std::uint64_t ObjectStore::newestVersion() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

PackedPtr ObjectStore::pack(const Json& object) const {
  return std::make_shared<const PackedObject>(object, digest_ ? digest_(object) : ObjectDigest());
}

void ObjectStore::indexLocked(const ObjectKey& key, const PackedPtr& object, bool add) {
  if (!object) return;
  for (const std::string& name : object->digest().names) {
    if (add) {
      by_name_[name].insert(key);
      continue;
    }
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) continue;
    it->second.erase(key);
    if (it->second.empty()) by_name_.erase(it);
  }
}

void ObjectStore::setLocked(const ObjectKey& key, PackedPtr after,
                            std::vector<ObjectChange>* changes) {
  const auto it = objects_.find(key);
  const PackedPtr before = it == objects_.end() ? nullptr : it->second;
  if (!before && !after) return;
  indexLocked(key, before, false);
  indexLocked(key, after, true);
  if (after) {
    objects_[key] = after;
  } else {
    objects_.erase(it);
  }
  if (before && after && before->uid() != after->uid()) {
    changes->push_back({key, before, nullptr});
    changes->push_back({key, nullptr, std::move(after)});
  } else {
    changes->push_back({key, before, std::move(after)});
  }
}

std::vector<ObjectChange> ObjectStore::replace(std::map<ObjectKey, PackedPtr> objects,
                                               std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  version_ = version;
  std::vector<ObjectKey> gone;
  for (const auto& [key, object] : objects_) {
    if (!objects.contains(key)) gone.push_back(key);
  }
  std::vector<ObjectChange> changes;
  for (const ObjectKey& key : gone) setLocked(key, nullptr, &changes);
  for (auto& [key, object] : objects) {
    const auto held = objects_.find(key);
    const bool same = held != objects_.end() && held->second->uid() == object->uid() &&
                      held->second->version() == object->version() && object->version() != 0;
    if (!same) setLocked(key, std::move(object), &changes);
  }
  return changes;
}

std::vector<ObjectChange> ObjectStore::put(const Json& object) {
  const ObjectKey key = objectKey(object);
  PackedPtr packed = pack(object);
  const std::lock_guard lock(mutex_);
  const auto held = objects_.find(key);
  std::vector<ObjectChange> changes;
  const std::uint64_t version = packed->version();
  if (held != objects_.end() && version != 0 && version <= held->second->version()) return changes;
  version_ = std::max(version_, version);
  setLocked(key, std::move(packed), &changes);
  return changes;
}

std::vector<ObjectChange> ObjectStore::erase(const Json& object) {
  const ObjectKey key = objectKey(object);
  const std::lock_guard lock(mutex_);
  version_ = std::max(version_, objectVersion(object));
  std::vector<ObjectChange> changes;
  const auto held = objects_.find(key);
  // The deletion of a predecessor says nothing about who has its name now.
  if (held != objects_.end() && held->second->uid() == objectUid(object)) {
    setLocked(key, nullptr, &changes);
  }
  return changes;
}

void ObjectStore::advance(std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  version_ = std::max(version_, version);
}

}  // namespace trainyard::control
