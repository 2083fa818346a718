#include "tests/operator/job/job_fixture.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "operator/job/internal/yaml.h"

namespace trainyard::control::testing {

const char* const kSmallJob = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata:
  name: small
spec:
  ps:
    replicas: 2
  worker:
    replicas: 4
  training:
    model: {name: mnist_cnn}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 1000}
    batchSize: 32
    steps: 10
    optimizer:
      name: SGD
      learningRate: 0.1
)";

std::string sourcePath(const std::string& relative) {
  const char* const root = std::getenv("TRAINYARD_SOURCE");
  return std::string(root == nullptr ? "." : root) + "/" + relative;
}

std::string readSource(const std::string& relative) {
  std::ifstream in(sourcePath(relative));
  EXPECT_TRUE(in.good()) << relative;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Json yaml(const std::string& text) {
  internal::YamlDocument document;
  std::vector<JobProblem> problems;
  EXPECT_TRUE(internal::readYaml(text, "text", &document, &problems))
      << (problems.empty() ? "" : problems.front().text());
  return document.value;
}

std::vector<std::string> problemsOf(const std::string& text, const ParseOptions& options) {
  std::vector<JobProblem> problems;
  const auto job = parseJob(text, "job.yaml", options, &problems);
  std::vector<std::string> lines;
  for (const JobProblem& problem : problems) lines.push_back(problem.text());
  EXPECT_EQ(job.ok(), lines.empty());
  if (!job.ok() && !lines.empty()) {
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(job.status().message(), lines.front());
  }
  return lines;
}

Json documentOf(const Json& table, const Json& one) {
  Json document = table.at("base");
  if (one.contains("variant"))
    document.merge_patch(table.at("variants").at(one.at("variant").get<std::string>()));
  return document;
}

std::vector<ValidationCase> validationCases() {
  const Json table = yaml(readSource("tests/conformance/validation/cases.yaml"));
  std::vector<ValidationCase> cases;
  for (const Json& row : table.at("cases")) {
    ValidationCase one;
    one.name = row.at("name").get<std::string>();
    one.document = documentOf(table, row);
    if (row.contains("patch")) one.document.merge_patch(row.at("patch"));
    if (row.contains("document")) one.document = yaml(row.at("document").get<std::string>());
    one.valid = row.value("valid", false);
    one.field = row.value("field", "");
    one.message = row.value("message", "");
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace trainyard::control::testing
