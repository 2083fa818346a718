// A checkpoint's manifest.
#include "base/core/check.h"
#include "runtime/checkpoint/manifest_json.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

runtime::Manifest wholeManifest() {
  runtime::Manifest manifest;
  manifest.job_uid = "uid";
  manifest.model_digest = "d";
  manifest.data_sha256 = "e";
  manifest.step = 1200;
  manifest.epoch = 5;
  manifest.position = 38400;
  manifest.unread = {{38000, 32}};
  manifest.data_samples = 60000;
  manifest.epochs = {{1, 0, 0, 2, 64}};
  manifest.optimizer = "Adam";
  manifest.slots = {"m", "v"};
  manifest.variables = {{"conv1_wei", {3, 3, 1, 8}, "F32"}, {"global_step", {}, "I32"}};
  manifest.files = {{"step-1200.e5.ps-0.safetensors", 1000, std::string(64, 'a')}};
  manifest.unix_ms = 1700000000000;
  manifest.max_ps = 2;
  return manifest;
}

// Each with one thing wrong.
std::vector<runtime::Manifest> wrong() {
  std::vector<runtime::Manifest> all;
  const auto add = [&](auto change) { change(all.emplace_back(wholeManifest())); };
  add([](runtime::Manifest& m) { m.format = 2; });
  add([](runtime::Manifest& m) { m.step = -1; });
  add([](runtime::Manifest& m) { m.variables.clear(); });
  add([](runtime::Manifest& m) { m.files.clear(); });
  add([](runtime::Manifest& m) { m.variables[0].name = "a b"; });
  add([](runtime::Manifest& m) { m.variables[0].dtype = "F16"; });
  add([](runtime::Manifest& m) { m.variables[0].shape = {1LL << 40, 1LL << 40}; });
  add([](runtime::Manifest& m) { m.variables[1].name = m.variables[0].name; });
  add([](runtime::Manifest& m) { m.slots[1] = m.slots[0]; });
  add([](runtime::Manifest& m) { m.files[0].name = "../passwd"; });
  add([](runtime::Manifest& m) { m.files.push_back(m.files[0]); });
  add([](runtime::Manifest& m) { m.files[0].sha256 = "A"; });
  add([](runtime::Manifest& m) { m.optimizer = std::string(5000, 'x'); });
  add([](runtime::Manifest& m) { m.slots.assign(65, "m"); });
  return all;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  TY_CHECK(at != std::string::npos, "it stands in the manifest");
  return text.replace(at, from.size(), to);
}

}  // namespace

void runManifest(std::string_view input) {
  const auto manifest = runtime::manifestFromJson(input);
  if (!manifest.ok()) {
    TY_CHECK(absl::IsInvalidArgument(manifest.status()), "a manifest that is wrong is named so");
    return;
  }
  TY_CHECK(runtime::validateManifest(*manifest).ok(), "what is read is valid");
  const std::string text = runtime::manifestToJson(*manifest);
  const auto again = runtime::manifestFromJson(text);
  TY_CHECK(again.ok() && runtime::manifestToJson(*again) == text, "it is written as it was read");
}

std::vector<std::string> manifestSeeds() {
  const std::string text = runtime::manifestToJson(wholeManifest());
  std::vector<std::string> seeds = {"", "{", "[]", "{}", text};
  for (const runtime::Manifest& manifest : wrong()) {
    seeds.push_back(runtime::manifestToJson(manifest));
  }
  seeds.push_back(replaced(text, "\"step\"", "\"stap\""));
  seeds.push_back(replaced(text, "1200,", "1200.5,"));
  seeds.push_back(replaced(text, "1200,", "18446744073709551615,"));
  seeds.push_back(replaced(text, "\"uid\"", "5"));
  seeds.push_back(replaced(text, "\"m\"", "{}"));
  seeds.push_back(replaced(text, "\"format\": 1", "\"format\": [[[[1]]]]"));
  seeds.push_back(replaced(text, "\"format\"", "\"more\": 1,\n \"format\""));
  seeds.push_back(replaced(text, "\"slots\": [", "\"slots\": 1, \"slats\": ["));
  seeds.push_back(replaced(text, "\"shape\": []", "\"shape\": [\"a\"]"));
  return seeds;
}

}  // namespace trainyard::fuzz
