#include "operator/cache/packed_object.h"

#include <utility>

#include "operator/cache/object_store.h"

namespace trainyard::control {

using Json = nlohmann::json;

PackedObject::PackedObject(const Json& object, ObjectDigest digest)
    : uid_(objectUid(object)), version_(objectVersion(object)), digest_(std::move(digest)) {
  std::string grown;
  Json::to_msgpack(object, grown);
  bytes_.assign(grown);  // no more than it takes
}

Json PackedObject::unpack() const {
  return Json::from_msgpack(bytes_);
}

}  // namespace trainyard::control
