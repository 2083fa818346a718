#include "tests/runtime/checkpoint/sample_checkpoint.h"

#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/core/check.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace trainyard::runtime {

SampleDir::SampleDir() {
  path_ = testing::TempDir() + "trainyard-checkpoint-XXXXXX";
  TY_CHECK(::mkdtemp(path_.data()) != nullptr, "tests can write to the folder of temporary files");
}

SampleDir::~SampleDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<ManifestVariable> sampleVariables() {
  return {{"global_step", {}, "I32"},
          {"conv", {5, 7}, "F32"},
          {"fc", {100, 3}, "F32"},
          {"bias", {3}, "F32"}};
}

float sampleValue(const std::string& variable, const std::string& slot, std::int64_t i,
                  std::int64_t step) {
  return static_cast<float>(variable.size() * 10 + slot.size()) + static_cast<float>(i) / 1024 -
         static_cast<float>(step);
}

Manifest sampleManifest(std::int64_t step, std::int64_t epoch) {
  Manifest m;
  m.job_uid = "6f1e";
  m.model_digest = std::string(64, 'a');
  m.data_sha256 = std::string(64, 'b');
  m.step = step;
  m.epoch = epoch;
  m.position = step * 256;
  m.data_samples = 60000;
  m.epochs = {{1, 0, 0, 2, 128}, {epoch, 3, 768, 2, 128}};
  m.optimizer = "RMSProp";
  m.slots = {"rms", "momentum"};
  m.variables = sampleVariables();
  m.unix_ms = 1'700'000'000'000;
  m.max_ps = 16;
  return m;
}

StatusOr<Manifest> writeSampleShards(const std::string& dir, int ps, std::int64_t step,
                                     std::int64_t epoch) {
  Manifest manifest = sampleManifest(step, epoch);
  for (int index = 0; index < ps; ++index) {
    std::deque<std::vector<float>> memory;  // keeps its elements in place
    std::vector<ShardTensor> tensors;
    const auto step32 = static_cast<std::int32_t>(step);
    for (const ManifestVariable& variable : manifest.variables) {
      if (variable.dtype == "I32") {
        if (index == 0) {
          tensors.push_back({variable.name, "", 0, 1, true, std::as_bytes(std::span(&step32, 1))});
        }
        continue;
      }
      const std::int64_t begin = elements(variable) * index / ps;
      const std::int64_t end = elements(variable) * (index + 1) / ps;
      for (const std::string& slot : {std::string(), std::string("rms"), std::string("momentum")}) {
        if (begin == end) continue;
        std::vector<float>& values = memory.emplace_back();
        for (std::int64_t i = begin; i < end; ++i) {
          values.push_back(sampleValue(variable.name, slot, i, step));
        }
        tensors.push_back(
            {variable.name, slot, begin, end, false, std::as_bytes(std::span(values))});
      }
    }
    const std::string name = fmt::format("ps-{}.step-{}.e{}.i1.safetensors", index, step, epoch);
    TY_ASSIGN_OR_RETURN(ShardFileInfo info, writeShard(dir, name, tensors));
    manifest.files.push_back(std::move(info));
  }
  return manifest;
}

StatusOr<Manifest> writeSample(const std::string& dir, int ps, std::int64_t step,
                               std::int64_t epoch) {
  TY_ASSIGN_OR_RETURN(Manifest manifest, writeSampleShards(dir, ps, step, epoch));
  TY_RETURN_IF_ERROR(commitManifest(dir, manifest));
  return manifest;
}

std::vector<std::string> fileNames(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string readText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void writeText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace trainyard::runtime
