#include "tests/operator/job/job_fixture.h"
#include "valijson/adapters/nlohmann_json_adapter.hpp"
#include "valijson/schema.hpp"
#include "valijson/schema_parser.hpp"
#include "valijson/validator.hpp"

namespace trainyard::control::testing {
namespace {

// JSON Schema lets unknown members pass unless told otherwise; the apiserver's structural schemas
// mean the contrary.
nlohmann::json closed(nlohmann::json schema) {
  const bool opaque = schema.value("x-kubernetes-preserve-unknown-fields", false);
  // valijson takes any format for one of text, and throws on a number.
  if (schema.value("type", "") != "string") schema.erase("format");
  if (schema.contains("items")) schema["items"] = closed(schema["items"]);
  if (schema.contains("additionalProperties")) {
    schema["additionalProperties"] = closed(schema["additionalProperties"]);
  } else if (schema.value("type", "") == "object" && !opaque) {
    schema["additionalProperties"] = false;
  }
  if (schema.contains("properties")) {
    for (auto& [name, member] : schema["properties"].items()) member = closed(member);
  }
  if (schema.value("x-kubernetes-int-or-string", false)) schema["type"] = {"integer", "string"};
  return schema;
}

}  // namespace

bool valijsonAccepts(const Json& document, const Json& schema) {
  const auto plain_schema = closed(nlohmann::json::parse(schema.dump()));
  const auto plain_document = nlohmann::json::parse(document.dump());
  valijson::Schema parsed;
  // Draft 4 is the one whose exclusiveMinimum is true or false, as in OpenAPI 3.0.
  valijson::SchemaParser parser(valijson::SchemaParser::kDraft4);
  parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(plain_schema), parsed);
  valijson::Validator validator;
  return validator.validate(parsed, valijson::adapters::NlohmannJsonAdapter(plain_document),
                            nullptr);
}

}  // namespace trainyard::control::testing
