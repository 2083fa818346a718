#include "operator/kube/render/internal/overlay.h"

#include <iterator>

#include "fmt/format.h"

namespace trainyard::control::internal {
namespace {

// The member at `key`, when it is there and not null.
const Json* member(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Status expectObject(const Json& object, const std::string& key, const std::string& path) {
  const Json* found = member(object, key);
  if (found == nullptr || found->is_object()) return absl::OkStatus();
  return invalidInput(path + "." + key, "expected an object");
}

Status expectTexts(const Json& object, const std::string& key, const std::string& path) {
  TY_RETURN_IF_ERROR(expectObject(object, key, path));
  const Json* found = member(object, key);
  if (found == nullptr) return absl::OkStatus();
  for (const auto& [name, value] : found->items()) {
    if (!value.is_string()) {
      return invalidInput(fmt::format("{}.{}[\"{}\"]", path, key, name),
                          "expected a text (put it in quotes)");
    }
  }
  return absl::OkStatus();
}

// A list of objects, each with a text under `identity`.
Status expectList(const Json& object, const std::string& key, const std::string& path,
                  const std::string& identity) {
  const Json* found = member(object, key);
  if (found == nullptr) return absl::OkStatus();
  const std::string place = path + "." + key;
  if (!found->is_array()) return invalidInput(place, "expected a list");
  for (std::size_t i = 0; i < found->size(); ++i) {
    const std::string item = fmt::format("{}[{}]", place, i);
    if (!(*found)[i].is_object()) return invalidInput(item, "expected an object");
    if (identity.empty()) continue;
    const Json* name = member((*found)[i], identity);
    if (name == nullptr) return invalidInput(item + "." + identity, "missing");
    if (!name->is_string()) return invalidInput(item + "." + identity, "expected a text");
  }
  return absl::OkStatus();
}

Status checkContainer(const Json& container, const std::string& path) {
  for (const char* key : {"image", "terminationMessagePath"}) {
    const Json* text = member(container, key);
    if (text != nullptr && !text->is_string()) {
      return invalidInput(path + "." + key, "expected a text");
    }
  }
  TY_RETURN_IF_ERROR(expectList(container, "env", path, "name"));
  TY_RETURN_IF_ERROR(expectList(container, "ports", path, ""));
  TY_RETURN_IF_ERROR(expectList(container, "volumeMounts", path, "mountPath"));
  TY_RETURN_IF_ERROR(expectObject(container, "securityContext", path));
  const Json* security = member(container, "securityContext");
  if (security == nullptr) return absl::OkStatus();
  return expectObject(*security, "capabilities", path + ".securityContext");
}

}  // namespace

bool has(const Json& object, const std::string& key) {
  return member(object, key) != nullptr;
}

void fill(Json& object, const std::string& key, Json value) {
  if (!has(object, key)) object[key] = std::move(value);
}

Json& objectIn(Json& object, const std::string& key) {
  fill(object, key, Json::object());
  return object[key];
}

Json& listIn(Json& object, const std::string& key) {
  fill(object, key, Json::array());
  return object[key];
}

Json* itemWith(Json& list, const std::string& key, const Json& value) {
  for (Json& item : list) {
    const auto found = item.find(key);
    if (found != item.end() && *found == value) return &item;
  }
  return nullptr;
}

void addUnlessThere(Json& list, const std::string& key, Json item) {
  if (itemWith(list, key, item[key]) == nullptr) list.push_back(std::move(item));
}

Status checkShape(const Json& pod, const std::string& path) {
  if (!pod.is_object()) return invalidInput(path, "expected a pod template");
  TY_RETURN_IF_ERROR(expectObject(pod, "metadata", path));
  if (const Json* metadata = member(pod, "metadata")) {
    TY_RETURN_IF_ERROR(expectTexts(*metadata, "labels", path + ".metadata"));
    TY_RETURN_IF_ERROR(expectTexts(*metadata, "annotations", path + ".metadata"));
  }
  TY_RETURN_IF_ERROR(expectObject(pod, "spec", path));
  const Json* spec = member(pod, "spec");
  if (spec == nullptr) return absl::OkStatus();
  const std::string place = path + ".spec";
  TY_RETURN_IF_ERROR(expectObject(*spec, "securityContext", place));
  TY_RETURN_IF_ERROR(expectList(*spec, "volumes", place, "name"));
  const Json* grace = member(*spec, kGraceField);
  if (grace != nullptr && !grace->is_number_integer()) {
    return invalidInput(fmt::format("{}.{}", place, kGraceField), "expected a whole number");
  }
  for (const char* kind : {"containers", "initContainers"}) {
    TY_RETURN_IF_ERROR(expectList(*spec, kind, place, "name"));
    const Json* containers = member(*spec, kind);
    for (std::size_t i = 0; containers != nullptr && i < containers->size(); ++i) {
      TY_RETURN_IF_ERROR(
          checkContainer((*containers)[i], fmt::format("{}.{}[{}]", place, kind, i)));
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::control::internal
