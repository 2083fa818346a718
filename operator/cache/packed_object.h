// An object as it is held while nobody looks at it.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace trainyard::control {

// What is taken from an object when it comes, since it is asked for again and again.
struct ObjectDigest {
  std::vector<std::string> names;  // under which it can be found, such as the job it belongs to
  std::any summary;
};
// Pure.
using DigestFunction = std::function<ObjectDigest(const nlohmann::json&)>;

// The object in MessagePack (https://msgpack.org), all of it: a pod as it is kept is about a KB
// that way, and eight as nodes of a tree, which take some 15 us to build. Never changes; any
// thread.
class PackedObject {
 public:
  PackedObject(const nlohmann::json& object, ObjectDigest digest);

  // The object as it was packed, made anew each time.
  nlohmann::json unpack() const;
  const std::string& uid() const { return uid_; }
  std::uint64_t version() const { return version_; }  // as objectVersion()
  const ObjectDigest& digest() const { return digest_; }

 private:
  const std::string uid_;
  const std::uint64_t version_;
  const ObjectDigest digest_;
  std::string bytes_;
};

using PackedPtr = std::shared_ptr<const PackedObject>;

}  // namespace trainyard::control
