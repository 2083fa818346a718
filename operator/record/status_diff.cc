#include "operator/record/status_diff.h"

#include <map>
#include <string_view>

#include "fmt/format.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace trainyard::control {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct Field {
  std::string path;
  std::string value;
};
using Fields = std::vector<Field>;

bool isTime(std::string_view name) {
  return name.ends_with("Time") || name == "time";
}

std::string scalarText(const Message& message, const FieldDescriptor& field) {
  const auto* reflection = message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return fmt::format("{}", reflection->GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return fmt::format("{}", reflection->GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(message, &field) ? "true" : "false";
    default:  // a status has no other scalars
      return reflection->GetString(message, &field);
  }
}

void flatten(const Message& message, const std::string& prefix, Fields* out) {
  std::vector<const FieldDescriptor*> present;
  message.GetReflection()->ListFields(message, &present);
  for (const FieldDescriptor* field : present) {
    const std::string path = prefix + field->json_name();
    if (field->is_repeated() || isTime(field->json_name())) continue;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      flatten(message.GetReflection()->GetMessage(message, field), path + ".", out);
    } else {
      out->push_back({path, scalarText(message, *field)});
    }
  }
}

// The lists of a status are maps by name.
Fields flattenStatus(const v1::JobStatus& status) {
  Fields fields;
  flatten(status, "", &fields);
  for (const v1::Condition& condition : status.conditions()) {
    fields.push_back({fmt::format("conditions.{}", condition.type()),
                      fmt::format("{} ({})", condition.status(), condition.reason())});
  }
  for (v1::TaskRecord record : status.tasks()) {
    const std::string prefix = fmt::format("tasks.{}.", record.task());
    record.clear_task();
    flatten(record, prefix, &fields);
  }
  return fields;
}

}  // namespace

std::vector<std::string> diffStatus(const v1::JobStatus& before, const v1::JobStatus& after) {
  std::map<std::string, std::string> old;
  for (const Field& field : flattenStatus(before)) old[field.path] = field.value;
  std::vector<std::string> lines;
  for (const Field& field : flattenStatus(after)) {
    const auto it = old.find(field.path);
    if (it == old.end()) {
      lines.push_back(fmt::format("{}: - -> {}", field.path, field.value));
      continue;
    }
    if (it->second != field.value) {
      lines.push_back(fmt::format("{}: {} -> {}", field.path, it->second, field.value));
    }
    old.erase(it);
  }
  for (const auto& [path, value] : old) lines.push_back(fmt::format("{}: {} -> -", path, value));
  return lines;
}

}  // namespace trainyard::control
