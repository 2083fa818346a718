// A job with its status as JSON, as run directories and the apiserver hold it: base/json.
#include "base/core/check.h"
#include "base/json/proto_json.h"
#include "tests/fuzz/target.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/measurements.pb.h"

namespace trainyard::fuzz {
namespace {

template <typename Message>
void decode(const nlohmann::ordered_json& json) {
  Message message;
  const Status read = fromJson(json, &message);
  if (!read.ok()) {
    TY_CHECK(absl::IsInvalidArgument(read), "what does not fit is named so");
    return;
  }
  const nlohmann::ordered_json written = toJson(message);
  Message again;
  TY_CHECK(fromJson(written, &again).ok(), "what is written can be read");
  TY_CHECK(toJson(again) == written, "a round trip changes nothing");
}

}  // namespace

void runRecord(std::string_view input) {
  const auto json = nlohmann::ordered_json::parse(input, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return;
  decode<v1::TrainingJob>(json);
  // For the types of fields that a job does not have.
  decode<v1::View>(json);
  decode<v1::Measurements>(json);
  decode<v1::RuntimeReport>(json);
}

std::vector<std::string> recordSeeds() {
  std::vector<std::string> seeds;
  for (const char* const text :
       {"",
        "{}",
        "[]",
        "5",
        "{\"a\":1}",
        "{\"\":1}",
        "{\"a.b\":1}",
        R"({"apiVersion":"a","kind":"b","metadata":{"name":"n","labels":{"a":"b","c":"d"},)"
        R"("generation":3,"uid":"u"},"spec":{"strategy":"ParameterServer","ps":{"replicas":2,)"
        R"("template":{"spec":{"containers":[{"name":"x"}]}}},"worker":{"replicas":4},)"
        R"("training":{"model":{"name":"mlp"},"data":{"format":"synthetic","shape":[28,28,1]},)"
        R"("steps":10,"deterministic":true,"optimizer":{"name":"SGD","learningRate":0.5}}},)"
        R"("status":{"conditions":[{"type":"Created","status":"True"}]}})",
        R"({"metadata":{"labels":5}})",
        R"({"metadata":{"labels":{"a":5}}})",
        R"({"spec":{"ps":{"replicas":1.5}}})",
        R"({"spec":{"ps":{"replicas":3000000000}}})",
        R"({"spec":{"ps":{"template":[]}}})",
        R"({"spec":{"training":{"deterministic":1}}})",
        R"({"spec":{"training":{"data":{"shape":5}}}})",
        R"({"spec":null})",
        R"({"sequence":18446744073709551615,"phase":"PHASE_ACTIVE","epoch":{"epoch":-1,)"
        R"("backupWorkers":-5,"chunkPs":[1,2],"members":[{"rank":1}]},"hold":true})",
        R"({"sequence":-1})",
        R"({"phase":"PHASE_NONE"})",
        R"({"phase":3})",
        R"({"epoch":{"chunkPs":[-3000000000]}})",
        R"({"gradientNorm":{"norm":"x"}})",
        R"({"stepTimes":{"counts":[1,2],"sum":1.5},"discarded":3,"collective":[{"op":"x"}]})",
        R"({"jobUid":"u","pid":4294967295,"traffic":[{"peer":{"role":"ROLE_PS","index":1}}]})",
        R"({"pid":4294967296})",
        R"({"jobUid":5})"}) {
    seeds.emplace_back(text);
  }
  return seeds;
}

}  // namespace trainyard::fuzz
