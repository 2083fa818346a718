// A job's YAML; after a zero byte one --set, "path=value".
#include <cstdlib>
#include <filesystem>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "base/json/proto_json.h"
#include "base/process/files.h"
#include "operator/job/job.h"
#include "operator/job/yaml_json.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

constexpr std::size_t kMaxSeedFile = 1 << 20;

// Of the source tree.
std::string pathOf(const std::string& file) {
  const char* const source = std::getenv("TRAINYARD_SOURCE");
  TY_CHECK(source != nullptr, "whoever starts this says where the sources are");
  return source + ("/" + file);
}

// The cases of tests/conformance/validation, each a base that is changed.
void addCases(std::vector<std::string>& seeds) {
  const auto text = readFile(pathOf("tests/conformance/validation/cases.yaml"), kMaxSeedFile);
  const auto cases = control::yamlToJson(text.value_or(""), "cases.yaml");
  TY_CHECK(cases.ok(), "the cases are read by their own test, too");
  for (const auto& one : cases->at("cases")) {
    nlohmann::json job = cases->at("base");
    if (one.contains("variant"))
      job.merge_patch(cases->at("variants").at(one.at("variant").get<std::string>()));
    if (one.contains("patch")) job.merge_patch(one.at("patch"));
    seeds.push_back(job.dump());
  }
}

}  // namespace

void runJob(std::string_view input) {
  const auto [text, change] = splitFirst(input, '\0');
  control::ParseOptions options;
  if (!change.empty()) {
    const auto [path, value] = splitFirst(change, '=');
    options.overrides.emplace_back(path, value);
  }
  std::vector<control::JobProblem> problems;
  const auto job = control::parseJob(text, "job.yaml", options, &problems);
  TY_CHECK(job.ok() == problems.empty(), "who is refused is told why");
  for (const control::JobProblem& problem : problems) {
    TY_CHECK(problem.text().find('\n') == std::string::npos, "a problem is one line");
  }
  if (!job.ok()) return;
  (void)control::checkSupported(*job);
  const nlohmann::ordered_json json = toJson(*job);
  const auto again = control::parseJob(control::toYaml(json), "resolved.yaml", {}, nullptr);
  TY_CHECK(again.ok(), "a resolved job is a job");
  TY_CHECK(toJson(*again) == json, "a resolved job is the same job");
}

std::vector<std::string> jobSeeds() {
  std::vector<std::string> seeds;
  std::error_code error;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(pathOf("examples"), error)) {
    if (file.path().extension() == ".yaml") {
      seeds.push_back(readFile(file.path().native(), kMaxSeedFile).value_or(""));
    }
  }
  TY_CHECK(!error && !seeds.empty(), "the examples are there");
  addCases(seeds);
  const std::string smallest = seeds.back();
  for (const char* const change :
       {"spec.training.steps=7", "training.optimizer.name=Adam", "spec.worker=", "=", "a.b[=1",
        "spec.volumes[0].name=x", "training.data={format: synthetic}", "spec.traning.steps=1",
        "training.steps=[", "metadata.labels.\"a.b/c\"=x"}) {
    seeds.push_back(smallest + '\0' + change);
  }
  for (const char* const yaml :
       {"", "# nothing\n---\n", "a: 1\n---\nb: 2\n", "a: &x [1]\nb: [*x, *x]\n", "? [a]\n: b\n",
        "a: 0o17\nb: 0x1f\nc: 1e3\nd: .inf\ne: ~\nf: 007\ng: +5\n", "<<: {a: 1}\n", "a: 'b",
        "a: !!str 5\nb: !!int 5\nc: !x 5\nd: !!null ''\n", "a: 1\na: 2\n", "[[[[[[", "\xff\xfe",
        "\xc3\xa4: \xf0\x9f\x98\x80\n", "a: 99999999999999999999\nb: -1e999\n", "a: |\n  b\n  c\n",
        "\xe0\x80\x80", "\xf4\x90\x80\x80", "\xed\xa0\x80", "a: {b: {c: [d, {e: f}]}}\n"}) {
    seeds.emplace_back(yaml);
  }
  std::string deep;
  for (int i = 0; i < 70; ++i) deep += "{a: ";
  seeds.push_back(deep + std::string(70, '}'));
  return seeds;
}

}  // namespace trainyard::fuzz
