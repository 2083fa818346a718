#include "operator/job/internal/schema.h"

#include <set>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "fmt/format.h"
#include "operator/job/internal/yaml.h"

namespace trainyard::control::internal {
namespace {

using Json = nlohmann::ordered_json;

Json parseEmbedded(std::string_view text, std::string_view name) {
  YamlDocument document;
  std::vector<JobProblem> problems;
  TY_CHECK(readYaml(text, name, &document, &problems), problems.front().text().c_str());
  return std::move(document.value);
}

Json loadSchema() {
  const Json crd = parseEmbedded(crdText(), "crds.yaml");
  Json schema = crd.at("spec").at("versions").at(0).at("schema").at("openAPIV3Schema");
  schema["properties"]["metadata"] = parseEmbedded(objectMetaText(), "object_meta.yaml");
  schema["required"] = {"apiVersion", "kind", "metadata", "spec"};
  const Status known = checkKeywords(schema);
  TY_CHECK(known.ok(), known.ToString().c_str());
  return schema;
}

// What validate() and applyDefaults() act on, and what only the apiserver or people read.
const std::set<std::string>& knownKeywords() {
  static const std::set<std::string> kKnown = {"type",
                                               "properties",
                                               "additionalProperties",
                                               "items",
                                               "required",
                                               "enum",
                                               "minimum",
                                               "maximum",
                                               "exclusiveMinimum",
                                               "exclusiveMaximum",
                                               "minLength",
                                               "maxLength",
                                               "pattern",
                                               "minItems",
                                               "maxItems",
                                               "maxProperties",
                                               "format",
                                               "default",
                                               "description",
                                               "x-kubernetes-int-or-string",
                                               "x-kubernetes-preserve-unknown-fields",
                                               "x-kubernetes-list-type",
                                               "x-kubernetes-list-map-keys",
                                               "x-kubernetes-validations"};
  return kKnown;
}

}  // namespace

const Json& jobSchema() {
  static const Json kSchema = loadSchema();
  return kSchema;
}

Status checkKeywords(const Json& schema) {
  static const std::set<std::string> kFormats = {"int32", "int64", "double", "date-time"};
  for (const auto& [keyword, value] : schema.items()) {
    if (!knownKeywords().contains(keyword)) {
      return absl::InvalidArgumentError(fmt::format("unknown keyword {}", keyword));
    }
    if (keyword == "format" && !kFormats.contains(value.get<std::string>())) {
      return absl::InvalidArgumentError(fmt::format("unknown format {}", value.dump()));
    }
    if (keyword == "x-kubernetes-list-type" && value != "map" && value != "atomic") {
      return absl::InvalidArgumentError(fmt::format("unknown list type {}", value.dump()));
    }
  }
  for (const char* const keyword : {"items", "additionalProperties"}) {
    if (schema.contains(keyword)) TY_RETURN_IF_ERROR(checkKeywords(schema.at(keyword)));
  }
  if (!schema.contains("properties")) return {};
  for (const auto& [name, member] : schema.at("properties").items()) {
    TY_RETURN_IF_ERROR(annotate(checkKeywords(member), name));
  }
  return {};
}

bool isOpaque(const Json& schema) {
  return schema.value("x-kubernetes-preserve-unknown-fields", false);
}

bool isIntOrText(const Json& schema) {
  return schema.value("x-kubernetes-int-or-string", false);
}

const Json* memberSchema(const Json& schema, const std::string& key) {
  const auto properties = schema.find("properties");
  if (properties != schema.end()) {
    const auto member = properties->find(key);
    if (member != properties->end()) return &*member;
  }
  const auto others = schema.find("additionalProperties");
  return others == schema.end() ? nullptr : &*others;
}

}  // namespace trainyard::control::internal
