// Messages to JSON and back, driven by the descriptor. Protobuf's own mapping writes int64 as text
// and loses zeros and the order of opaque members.
#include "base/json/proto_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "trainyard/v1/options.pb.h"

namespace trainyard {
namespace {

using Json = nlohmann::ordered_json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// "spec" + "worker" -> "spec.worker"; + 2 -> "spec[2]"; keys that are no plain names are quoted.
std::string childPath(std::string_view parent, std::string_view key) {
  const bool plain = !key.empty() && key.find_first_of(".[]\"") == std::string_view::npos;
  if (!plain) return fmt::format("{}[\"{}\"]", parent, key);
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

std::string childPath(std::string_view parent, std::size_t index) {
  return fmt::format("{}[{}]", parent, index);
}

bool isRawJson(const FieldDescriptor* field) {
  return field->options().GetExtension(v1::raw_json);
}

bool isIntOrText(const FieldDescriptor* field) {
  return field->options().GetExtension(v1::int_or_text);
}

// "2" as 2; what is no number, or not as one is written, as text.
Json intOrText(std::string text) {
  const auto number = parseNumber<std::int64_t>(text);
  if (number && fmt::to_string(*number) == text) return *number;
  return text;
}

// A value that is taken from, or put into, a repeated field where `index` >= 0.
Json getValue(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* const r = message.GetReflection();
  const bool one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r->GetInt32(message, field) : r->GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r->GetInt64(message, field) : r->GetRepeatedInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? r->GetUInt32(message, field) : r->GetRepeatedUInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? r->GetUInt64(message, field) : r->GetRepeatedUInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? r->GetDouble(message, field) : r->GetRepeatedDouble(message, field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? r->GetFloat(message, field) : r->GetRepeatedFloat(message, field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r->GetBool(message, field) : r->GetRepeatedBool(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (one ? r->GetEnum(message, field) : r->GetRepeatedEnum(message, field, index))->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return toJson(one ? r->GetMessage(message, field)
                        : r->GetRepeatedMessage(message, field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      break;
  }
  std::string text =
      one ? r->GetString(message, field) : r->GetRepeatedString(message, field, index);
  if (isIntOrText(field)) return intOrText(std::move(text));
  if (!isRawJson(field)) return text;
  Json raw = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return raw.is_discarded() ? Json(text) : raw;
}

// By key, so that equal maps give equal text.
Json getMap(const Message& message, const FieldDescriptor* field) {
  const Reflection* const r = message.GetReflection();
  const FieldDescriptor* const key = field->message_type()->map_key();
  const FieldDescriptor* const value = field->message_type()->map_value();
  std::vector<std::pair<std::string, Json>> entries;
  for (int i = 0; i < r->FieldSize(message, field); ++i) {
    const Message& entry = r->GetRepeatedMessage(message, field, i);
    const Json name = getValue(entry, key, -1);
    entries.emplace_back(name.is_string() ? name.get<std::string>() : name.dump(),
                         getValue(entry, value, -1));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  Json result = Json::object();
  for (auto& [name, member] : entries) result[name] = std::move(member);
  return result;
}

class Decoder {
 public:
  Status decode(const Json& json, const std::string& path, Message* message) {
    if (!json.is_object()) return wrongType(path, "a mapping", json);
    for (const auto& [name, value] : json.items()) {
      const std::string child = childPath(path, name);
      const FieldDescriptor* const field = message->GetDescriptor()->FindFieldByCamelcaseName(name);
      if (field == nullptr) return problem(child, "unknown field");
      if (!value.is_null()) TY_RETURN_IF_ERROR(decodeField(value, child, field, message));
    }
    return {};
  }

 private:
  static Status problem(const std::string& path, std::string_view message) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", path.empty() ? "the document" : path, message));
  }
  static Status wrongType(const std::string& path, std::string_view expected, const Json& json) {
    return problem(path, fmt::format("expected {}, got {}", expected, json.type_name()));
  }

  Status decodeField(const Json& json, const std::string& path, const FieldDescriptor* field,
                     Message* message) {
    if (field->is_map()) return decodeMap(json, path, field, message);
    if (!field->is_repeated()) return decodeValue(json, path, field, message);
    if (!json.is_array()) return wrongType(path, "a list", json);
    for (std::size_t i = 0; i < json.size(); ++i) {
      TY_RETURN_IF_ERROR(decodeValue(json[i], childPath(path, i), field, message));
    }
    return {};
  }

  Status decodeMap(const Json& json, const std::string& path, const FieldDescriptor* field,
                   Message* message) {
    if (!json.is_object()) return wrongType(path, "a mapping", json);
    if (field->message_type()->map_key()->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
      return problem(path, "a map whose keys are no text is not supported");
    }
    const Reflection* const r = message->GetReflection();
    for (const auto& [name, value] : json.items()) {
      Message* const entry = r->AddMessage(message, field);
      entry->GetReflection()->SetString(entry, field->message_type()->map_key(), name);
      TY_RETURN_IF_ERROR(
          decodeValue(value, childPath(path, name), field->message_type()->map_value(), entry));
    }
    return {};
  }

  // Sets the field, or adds to it when it is repeated.
  Status decodeValue(const Json& json, const std::string& path, const FieldDescriptor* field,
                     Message* message) {
    const Reflection* const r = message->GetReflection();
    const bool add = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        TY_ASSIGN_OR_RETURN(const auto value, integer<std::int32_t>(json, path));
        add ? r->AddInt32(message, field, value) : r->SetInt32(message, field, value);
        return {};
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        TY_ASSIGN_OR_RETURN(const auto value, integer<std::int64_t>(json, path));
        add ? r->AddInt64(message, field, value) : r->SetInt64(message, field, value);
        return {};
      }
      case FieldDescriptor::CPPTYPE_UINT32: {
        TY_ASSIGN_OR_RETURN(const auto value, integer<std::uint32_t>(json, path));
        add ? r->AddUInt32(message, field, value) : r->SetUInt32(message, field, value);
        return {};
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        TY_ASSIGN_OR_RETURN(const auto value, integer<std::uint64_t>(json, path));
        add ? r->AddUInt64(message, field, value) : r->SetUInt64(message, field, value);
        return {};
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return decode(json, path,
                      add ? r->AddMessage(message, field) : r->MutableMessage(message, field));
      default:
        return decodeOther(json, path, field, message);
    }
  }

  Status decodeOther(const Json& json, const std::string& path, const FieldDescriptor* field,
                     Message* message) {
    const Reflection* const r = message->GetReflection();
    const bool add = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        if (!json.is_number()) return wrongType(path, "a number", json);
        const auto value = json.get<double>();
        add ? r->AddDouble(message, field, value) : r->SetDouble(message, field, value);
        return {};
      }
      case FieldDescriptor::CPPTYPE_FLOAT: {
        if (!json.is_number()) return wrongType(path, "a number", json);
        const auto value = json.get<float>();
        add ? r->AddFloat(message, field, value) : r->SetFloat(message, field, value);
        return {};
      }
      case FieldDescriptor::CPPTYPE_BOOL: {
        if (!json.is_boolean()) return wrongType(path, "true or false", json);
        const auto value = json.get<bool>();
        add ? r->AddBool(message, field, value) : r->SetBool(message, field, value);
        return {};
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        if (!json.is_string()) return wrongType(path, "text", json);
        const auto* const value = field->enum_type()->FindValueByName(json.get<std::string>());
        if (value == nullptr)
          return problem(path, fmt::format("{} is no known value", json.dump()));
        add ? r->AddEnum(message, field, value) : r->SetEnum(message, field, value);
        return {};
      }
      default:
        return decodeText(json, path, field, message);
    }
  }

  static Status decodeText(const Json& json, const std::string& path, const FieldDescriptor* field,
                           Message* message) {
    const bool raw = isRawJson(field);
    const bool either = isIntOrText(field);
    const bool number = either && json.is_number_integer();
    if (raw ? !json.is_object() : !number && !json.is_string()) {
      return wrongType(path, raw ? "a mapping" : either ? "text or a whole number" : "text", json);
    }
    std::string value = raw || number ? json.dump() : json.get<std::string>();
    const Reflection* const r = message->GetReflection();
    field->is_repeated() ? r->AddString(message, field, std::move(value))
                         : r->SetString(message, field, std::move(value));
    return {};
  }

  template <typename T>
  static StatusOr<T> integer(const Json& json, const std::string& path) {
    const auto outOfRange = [&] {
      return problem(path, fmt::format("{} is out of range", json.dump()));
    };
    if (json.is_number_unsigned()) {
      const auto value = json.get<std::uint64_t>();
      if (value > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return outOfRange();
      return static_cast<T>(value);
    }
    if (!json.is_number_integer()) return wrongType(path, "a whole number", json);
    const auto value = json.get<std::int64_t>();
    if (!std::in_range<T>(value)) return outOfRange();
    return static_cast<T>(value);
  }
};

}  // namespace

Json toJson(const Message& message) {
  const auto* const descriptor = message.GetDescriptor();
  const Reflection* const r = message.GetReflection();
  Json result = Json::object();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* const field = descriptor->field(i);
    const std::string& name = field->camelcase_name();
    if (field->is_repeated()) {
      const int size = r->FieldSize(message, field);
      if (size == 0) continue;
      if (field->is_map()) {
        result[name] = getMap(message, field);
        continue;
      }
      Json& list = result[name] = Json::array();
      for (int k = 0; k < size; ++k) list.push_back(getValue(message, field, k));
    } else if (r->HasField(message, field)) {
      result[name] = getValue(message, field, -1);
    }
  }
  return result;
}

Status fromJson(const Json& json, Message* message) {
  message->Clear();
  return Decoder().decode(json, "", message);
}

}  // namespace trainyard
