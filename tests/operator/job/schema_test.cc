// The message and the schema describe one type; this walks both.
#include "operator/job/internal/schema.h"

#include <set>

#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "operator/job/internal/validate.h"
#include "operator/job/internal/yaml.h"
#include "tests/operator/job/job_fixture.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/options.pb.h"

namespace trainyard::control::testing {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Members of metadata that the apiserver writes and we drop.
const std::set<std::string> kNotInMessage = {"metadata.deletionGracePeriodSeconds",
                                             "metadata.generateName", "metadata.managedFields",
                                             "metadata.ownerReferences", "metadata.selfLink"};

void compareMessage(const Descriptor* descriptor, const Json& schema, const std::string& path);

// One value: a field, or an item of a repeated one.
void compareValue(const FieldDescriptor* field, const Json& schema, const std::string& path) {
  SCOPED_TRACE(path);
  std::string type;
  std::string format;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      type = "integer";
      format = "int32";
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      type = "integer";
      format = "int64";
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      type = "number";
      format = "double";
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      type = "boolean";
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      type = "string";
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      type = "object";
      break;
    default:
      FAIL() << "a type that no job needs; enumerations are strings";
  }
  const bool raw = field->options().GetExtension(v1::raw_json);
  const bool either = field->options().GetExtension(v1::int_or_text);
  if (raw) type = "object";
  if (either) type = "";  // a type beside int-or-string is refused by the apiserver
  EXPECT_EQ(schema.value("type", ""), type);
  EXPECT_EQ(internal::isOpaque(schema), raw);
  EXPECT_EQ(internal::isIntOrText(schema), either);
  const std::string found_format = schema.value("format", "");
  if (found_format != "date-time") {
    EXPECT_EQ(found_format, format);
  }
  if (schema.contains("enum")) {
    EXPECT_EQ(type, "string");
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    compareMessage(field->message_type(), schema, path);
  }
}

void compareField(const FieldDescriptor* field, const Json& schema, const std::string& path) {
  SCOPED_TRACE(path);
  if (field->is_map()) {
    EXPECT_EQ(schema.value("type", ""), "object");
    ASSERT_TRUE(schema.contains("additionalProperties"));
    compareValue(field->message_type()->map_value(), schema.at("additionalProperties"), path);
  } else if (field->is_repeated()) {
    EXPECT_EQ(schema.value("type", ""), "array");
    ASSERT_TRUE(schema.contains("items"));
    compareValue(field, schema.at("items"), path + "[]");
  } else {
    EXPECT_TRUE(field->has_presence()) << "absent and zero must differ";
    compareValue(field, schema, path);
  }
}

void compareMessage(const Descriptor* descriptor, const Json& schema, const std::string& path) {
  SCOPED_TRACE(path);
  ASSERT_TRUE(schema.contains("properties"));
  const Json& properties = schema.at("properties");
  const std::string prefix = path.empty() ? "" : path + ".";
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const std::string& name = descriptor->field(i)->camelcase_name();
    ASSERT_TRUE(properties.contains(name)) << prefix << name << " is not in the schema";
    compareField(descriptor->field(i), properties.at(name), prefix + name);
  }
  for (const auto& [name, member] : properties.items()) {
    EXPECT_TRUE(descriptor->FindFieldByCamelcaseName(name) != nullptr ||
                kNotInMessage.contains(prefix + name))
        << prefix << name << " is not in the message";
  }
}

TEST(Schema, MessageAndSchemaAreOneType) {
  compareMessage(v1::TrainingJob::descriptor(), internal::jobSchema(), "");
}

// Calls `visit` for every schema within `schema`.
template <typename Visit>
void walk(const Json& schema, const std::string& path, const Visit& visit) {
  visit(schema, path);
  if (schema.contains("items")) walk(schema.at("items"), path + "[]", visit);
  if (!schema.contains("properties")) return;
  for (const auto& [name, member] : schema.at("properties").items()) {
    walk(member, path + "." + name, visit);
  }
}

TEST(Schema, EverythingIsBounded) {
  for (const char* const part : {"spec", "status"}) {
    walk(internal::jobSchema().at("properties").at(part), part,
         [](const Json& schema, const std::string& path) {
           SCOPED_TRACE(path);
           const std::string type = schema.value("type", "");
           if (internal::isIntOrText(schema)) {
             EXPECT_TRUE(schema.contains("minimum") && schema.contains("maximum"));
             EXPECT_TRUE(schema.contains("pattern"));
           } else if (type == "integer" || type == "number") {
             EXPECT_TRUE(schema.contains("minimum") && schema.contains("maximum"));
           } else if (type == "string") {
             EXPECT_TRUE(schema.contains("enum") || schema.contains("maxLength"));
           } else if (type == "array") {
             EXPECT_TRUE(schema.contains("maxItems"));
           }
           if (schema.value("format", "") == "int32") {
             EXPECT_LE(schema.at("maximum").get<std::int64_t>(), INT32_MAX);
           }
         });
  }
}

TEST(Schema, EveryFieldOfTheSpecIsDescribed) {
  walk(internal::jobSchema().at("properties").at("spec"), "spec",
       [](const Json& schema, const std::string& path) {
         if (!path.ends_with("[]")) {
           EXPECT_TRUE(schema.contains("description")) << path;
         }
       });
}

// A default that its own schema refuses would make every job invalid.
TEST(Schema, DefaultsAreValid) {
  walk(internal::jobSchema(), "", [](const Json& schema, const std::string& path) {
    if (!schema.contains("default")) return;
    Json value = schema.at("default");
    internal::applyDefaults(value, schema);
    const internal::Locations nowhere;
    std::vector<JobProblem> problems;
    internal::ProblemList list(nowhere, &problems);
    internal::validate(value, schema, list);
    EXPECT_TRUE(problems.empty()) << path << ": " << problems.front().text();
  });
}

TEST(Schema, RefusesKeywordsThatNobodyChecks) {
  EXPECT_TRUE(internal::checkKeywords(internal::jobSchema()).ok());
  EXPECT_FALSE(internal::checkKeywords(Json{{"type", "string"}, {"uniqueItems", true}}).ok());
  EXPECT_FALSE(internal::checkKeywords(Json{{"type", "string"}, {"format", "uri"}}).ok());
  EXPECT_FALSE(internal::checkKeywords(yaml("{properties: {a: {items: {anyOf: []}}}}")).ok());
}

// Messages give a pattern in words; a new pattern needs words, too.
TEST(Schema, PatternsHaveWords) {
  walk(internal::jobSchema(), "", [](const Json& schema, const std::string& path) {
    if (!schema.contains("pattern")) return;
    const internal::Locations nowhere;
    std::vector<JobProblem> problems;
    internal::ProblemList list(nowhere, &problems);
    internal::validate("!", schema, list);
    ASSERT_EQ(problems.size(), 1u) << path;
    EXPECT_EQ(problems[0].message.find("matches"), std::string::npos) << problems[0].message;
  });
}

TEST(Schema, ResourceIsWhatTheOperatorExpects) {
  const std::string text(internal::crdText());
  EXPECT_EQ(text, readSource("deploy/crds.yaml"));
  const Json crd = yaml(text);
  EXPECT_EQ(crd.at("metadata").at("name"), "trainingjobs.trainyard.dev");
  EXPECT_EQ(crd.at("spec").at("names").at("shortNames"), Json::array({"tj"}));
  const Json& version = crd.at("spec").at("versions").at(0);
  EXPECT_EQ(version.at("name"), "v1alpha1");
  EXPECT_EQ(version.at("subresources").at("scale").at("specReplicasPath"), ".spec.worker.replicas");
  EXPECT_TRUE(version.at("subresources").contains("status"));
  // kubectl apply keeps the whole object in an annotation of at most 256 KiB.
  EXPECT_LT(crd.dump().size(), 256u << 10);
}

}  // namespace
}  // namespace trainyard::control::testing
