#include "base/json/proto_json.h"
#include "google/protobuf/descriptor.h"
#include "operator/kube/observe/observe.h"
#include "trainyard/v1/options.pb.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

const FieldDescriptor* fieldNamed(const Descriptor& message, const std::string& name) {
  for (int i = 0; i < message.field_count(); ++i) {
    if (message.field(i)->json_name() == name) return message.field(i);
  }
  return nullptr;
}

// Drops the members that the message does not have, also inside. Opaque ones stay as they are.
void keepKnown(Json& object, const Descriptor& message) {
  if (!object.is_object()) return;
  for (auto member = object.begin(); member != object.end();) {
    const FieldDescriptor* field = fieldNamed(message, member.key());
    if (field == nullptr || member->is_null()) {
      member = object.erase(member);
      continue;
    }
    const bool deep = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_map();
    if (deep && field->is_repeated() && member->is_array()) {
      for (Json& item : *member) keepKnown(item, *field->message_type());
    } else if (deep) {
      keepKnown(*member, *field->message_type());
    }
    ++member;
  }
}

}  // namespace

StatusOr<v1::TrainingJob> readJob(const Json& object) {
  Json known = object;
  keepKnown(known, *v1::TrainingJob::descriptor());
  v1::TrainingJob job;
  TY_RETURN_IF_ERROR(fromJson(nlohmann::ordered_json(known), &job));
  return job;
}

Json mergePatch(const Json& before, const Json& after) {
  Json patch = Json::object();
  if (!before.is_object() || !after.is_object()) return after;
  for (const auto& [name, value] : before.items()) {
    if (!after.contains(name)) patch[name] = nullptr;
  }
  for (const auto& [name, value] : after.items()) {
    const auto old = before.find(name);
    if (old != before.end() && *old == value) continue;
    const bool inside = old != before.end() && old->is_object() && value.is_object();
    patch[name] = inside ? mergePatch(*old, value) : value;
  }
  return patch;
}

Json statusPatch(const v1::TrainingJob& job, const v1::JobStatus& status) {
  const Json before = Json(toJson(job.status()));
  const Json difference = mergePatch(before, Json(toJson(status)));
  Json patch = Json::object();
  if (difference.empty()) return patch;
  patch["metadata"]["resourceVersion"] = job.metadata().resource_version();
  patch["status"] = difference;
  return patch;
}

}  // namespace trainyard::control
