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

ObjectStore::ObjectStore(IndexFunction index) : index_(std::move(index)) {}

ObjectPtr ObjectStore::get(const ObjectKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = objects_.find(key);
  return it == objects_.end() ? nullptr : it->second;
}

std::vector<ObjectPtr> ObjectStore::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<ObjectPtr> result;
  result.reserve(objects_.size());
  for (const auto& [key, object] : objects_) result.push_back(object);
  return result;
}

std::vector<ObjectPtr> ObjectStore::byIndex(const std::string& value) const {
  const std::lock_guard lock(mutex_);
  std::vector<ObjectPtr> result;
  const auto keys = by_index_.find(value);
  if (keys == by_index_.end()) return result;
  for (const ObjectKey& key : keys->second) result.push_back(objects_.at(key));
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

void ObjectStore::indexLocked(const ObjectKey& key, const ObjectPtr& object, bool add) {
  if (!index_ || !object) return;
  for (std::string& value : index_(*object)) {
    if (add) {
      by_index_[std::move(value)].insert(key);
      continue;
    }
    const auto it = by_index_.find(value);
    if (it == by_index_.end()) continue;
    it->second.erase(key);
    if (it->second.empty()) by_index_.erase(it);
  }
}

void ObjectStore::setLocked(const ObjectKey& key, ObjectPtr after,
                            std::vector<ObjectChange>* changes) {
  const auto it = objects_.find(key);
  const ObjectPtr before = it == objects_.end() ? nullptr : it->second;
  if (!before && !after) return;
  indexLocked(key, before, false);
  indexLocked(key, after, true);
  if (after) {
    objects_[key] = after;
  } else {
    objects_.erase(it);
  }
  if (before && after && objectUid(*before) != objectUid(*after)) {
    changes->push_back({key, before, nullptr});
    changes->push_back({key, nullptr, std::move(after)});
  } else {
    changes->push_back({key, before, std::move(after)});
  }
}

std::vector<ObjectChange> ObjectStore::replace(std::vector<Json> objects, std::uint64_t version) {
  std::map<ObjectKey, ObjectPtr> listed;
  for (Json& object : objects) {
    ObjectKey key = objectKey(object);
    listed[std::move(key)] = std::make_shared<const Json>(std::move(object));
  }
  const std::lock_guard lock(mutex_);
  version_ = version;
  std::vector<ObjectKey> gone;
  for (const auto& [key, object] : objects_) {
    if (!listed.contains(key)) gone.push_back(key);
  }
  std::vector<ObjectChange> changes;
  for (const ObjectKey& key : gone) setLocked(key, nullptr, &changes);
  for (auto& [key, object] : listed) {
    const auto held = objects_.find(key);
    const bool same = held != objects_.end() && objectUid(*held->second) == objectUid(*object) &&
                      objectVersion(*held->second) == objectVersion(*object) &&
                      objectVersion(*object) != 0;
    if (!same) setLocked(key, std::move(object), &changes);
  }
  return changes;
}

std::vector<ObjectChange> ObjectStore::put(Json object) {
  const ObjectKey key = objectKey(object);
  const std::uint64_t version = objectVersion(object);
  const std::lock_guard lock(mutex_);
  const auto held = objects_.find(key);
  std::vector<ObjectChange> changes;
  if (held != objects_.end() && version != 0 && version <= objectVersion(*held->second)) {
    return changes;
  }
  version_ = std::max(version_, version);
  setLocked(key, std::make_shared<const Json>(std::move(object)), &changes);
  return changes;
}

std::vector<ObjectChange> ObjectStore::erase(const Json& object) {
  const ObjectKey key = objectKey(object);
  const std::lock_guard lock(mutex_);
  version_ = std::max(version_, objectVersion(object));
  std::vector<ObjectChange> changes;
  const auto held = objects_.find(key);
  // The deletion of a predecessor says nothing about who has its name now.
  if (held != objects_.end() && objectUid(*held->second) == objectUid(object)) {
    setLocked(key, nullptr, &changes);
  }
  return changes;
}

void ObjectStore::advance(std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  version_ = std::max(version_, version);
}

}  // namespace trainyard::control
