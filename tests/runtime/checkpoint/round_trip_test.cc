// What was written is read again, whatever the number of shards; the exported file is read by a
// parser that shares no code with ours.
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/process/child_process.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/changes.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/storage/durable_file.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RoundTrip : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Shards, RoundTrip, testing::Values(1, 2, 3, 7));

TEST_P(RoundTrip, EveryElementComesBack) {
  SampleDir dir;
  const auto written = writeSample(dir.path(), GetParam(), 12, 5);
  ASSERT_TRUE(written.ok()) << written.status();
  const auto manifest = readManifest(dir / "step-12.e5.json");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto reader = CheckpointReader::open(dir.path(), *manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const ManifestVariable& variable : sampleVariables()) {
    if (variable.dtype == "I32") continue;
    for (const std::string slot : {"", "rms", "momentum"}) {
      std::vector<float> values(static_cast<std::size_t>(elements(variable)));
      ASSERT_EQ(reader->read(variable.name, slot, 0, values), absl::OkStatus());
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], sampleValue(variable.name, slot, static_cast<std::int64_t>(i), 12))
            << variable.name << "/" << slot << " " << i;
      }
    }
  }
  std::int32_t step = 0;
  ASSERT_EQ(reader->readBytes("global_step", "", 0, std::as_writable_bytes(std::span(&step, 1))),
            absl::OkStatus());
  EXPECT_EQ(step, 12);
}

TEST_P(RoundTrip, RangesAcrossShardBorders) {
  SampleDir dir;
  const auto manifest = writeSample(dir.path(), GetParam(), 12, 5);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto reader = CheckpointReader::open(dir.path(), *manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (std::int64_t begin = 0; begin < 300; begin += 13) {
    for (std::int64_t end = begin; end <= 300; end += 41) {
      std::vector<float> values(static_cast<std::size_t>(end - begin));
      ASSERT_EQ(reader->read("fc", "rms", begin, values), absl::OkStatus());
      for (std::int64_t i = begin; i < end; ++i) {
        ASSERT_EQ(values[static_cast<std::size_t>(i - begin)], sampleValue("fc", "rms", i, 12));
      }
    }
  }
}

TEST_P(RoundTrip, DigestDoesNotDependOnShards) {
  SampleDir dir, whole;
  const auto cut = writeSample(dir.path(), GetParam(), 12, 5);
  const auto uncut = writeSample(whole.path(), 1, 12, 9);  // nor on the epoch
  ASSERT_TRUE(cut.ok() && uncut.ok());
  const auto a = checkpointDigest(*CheckpointReader::open(dir.path(), *cut));
  const auto b = checkpointDigest(*CheckpointReader::open(whole.path(), *uncut));
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(*a, *b);
  EXPECT_EQ(a->size(), 64u);
}

TEST(Digest, DiffersWithWeightsSlotsStepAndNames) {
  std::set<std::string> digests;
  const auto add = [&](const std::string& name, float weight, float slot, std::int64_t step) {
    SampleDir dir;
    Manifest m = sampleManifest(step, 1);
    m.variables = {{name, {2}, "F32"}};
    m.slots = {"rms"};
    const float weights[] = {weight, 0}, slots[] = {slot, 0};
    const auto info = writeShard(dir.path(), "a.safetensors",
                                 {{name, "", 0, 2, false, std::as_bytes(std::span(weights))},
                                  {name, "rms", 0, 2, false, std::as_bytes(std::span(slots))}});
    ASSERT_TRUE(info.ok()) << info.status();
    m.files = {*info};
    digests.insert(*checkpointDigest(*CheckpointReader::open(dir.path(), m)));
  };
  add("w", 1, 2, 3);
  add("v", 1, 2, 3);
  add("w", 2, 2, 3);
  add("w", 1, 1, 3);
  add("w", 1, 2, 4);
  add("w", 1, 2, 3);  // the first once more
  EXPECT_EQ(digests.size(), 5u);
}

TEST(Reader, NamesWhatIsNotThere) {
  SampleDir dir;
  const auto manifest = writeSample(dir.path(), 2, 12, 5);
  ASSERT_TRUE(manifest.ok());
  const auto reader = CheckpointReader::open(dir.path(), *manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> two(2);
  const auto message = [&](const std::string& variable, const std::string& slot,
                           std::int64_t begin) {
    return std::string(reader->read(variable, slot, begin, two).ToString());
  };
  EXPECT_THAT(message("fc", "", 299), HasSubstr("NOT_FOUND: step-12.e5.json: no fc[299:301]"));
  EXPECT_THAT(message("fc", "", -1), HasSubstr("no fc[-1:1]"));
  EXPECT_THAT(message("fc2", "", 0), HasSubstr("no fc2[0:2]"));
  EXPECT_THAT(message("fc", "adam", 0), HasSubstr("no fc/adam[0:2]"));
  EXPECT_THAT(message("global_step", "", 0), HasSubstr("dtype I32, expected F32"));
  EXPECT_TRUE(reader->hasSlot("fc", "rms"));
  EXPECT_FALSE(reader->hasSlot("global_step", "rms"));
  EXPECT_FALSE(reader->hasSlot("fc", ""));
}

TEST(Reader, KeepsItsFilesWhenTheyAreRemoved) {
  SampleDir dir;
  const auto manifest = writeSample(dir.path(), 2, 12, 5);
  ASSERT_TRUE(manifest.ok());
  const auto reader = CheckpointReader::open(dir.path(), *manifest);
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(writeSample(dir.path(), 2, 13, 5).ok());
  ASSERT_EQ(prune(dir.path(), 1), absl::OkStatus());
  std::vector<float> values(300);
  EXPECT_EQ(reader->read("fc", "", 0, values), absl::OkStatus());
}

TEST(WriteShard, ReportsSizeAndHashAndAlignsArrays) {
  SampleDir dir;
  const auto manifest = writeSample(dir.path(), 1, 12, 5);
  ASSERT_TRUE(manifest.ok());
  const std::string bytes = readText(dir / manifest->files[0].name);
  EXPECT_EQ(manifest->files[0].size, bytes.size());
  EXPECT_EQ(manifest->files[0].sha256, sha256Hex(std::string_view(bytes)));
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  EXPECT_EQ((header + 8) % 64, 0u);
  EXPECT_THAT(bytes.substr(8, header), HasSubstr("\"fc[0:300]/rms\""));
  EXPECT_EQ(bytes.size(), 8 + header + 4 * (1 + 3 * (35 + 300 + 3)));
  EXPECT_THAT(fileNames(dir.path()),
              ElementsAre("ps-0.step-12.e5.i1.safetensors", "step-12.e5.json"));
}

TEST(WriteShard, ReplacesAnOlderFileOfThatName) {
  SampleDir dir;
  const float one = 1, two = 2;
  ASSERT_TRUE(
      writeShard(dir.path(), "a", {{"w", "", 0, 1, false, std::as_bytes(std::span(&one, 1))}})
          .ok());
  const std::string before = readText(dir / "a");
  ASSERT_TRUE(
      writeShard(dir.path(), "a", {{"w", "", 0, 1, false, std::as_bytes(std::span(&two, 1))}})
          .ok());
  EXPECT_NE(readText(dir / "a"), before);
}

TEST(WriteShard, RefusesNamesThatLeaveTheDirectoryAndTwins) {
  SampleDir dir;
  for (const char* name : {"../a", "/a", "", ".a", "b/a"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(writeShard(dir.path(), name, {}).status())) << name;
  }
  const float one = 1;
  const ShardTensor tensor{"w", "", 0, 1, false, std::as_bytes(std::span(&one, 1))};
  EXPECT_THAT(writeShard(dir.path(), "a", {tensor, tensor}).status().ToString(),
              HasSubstr("tensor 'w[0:1]': occurs twice"));
  EXPECT_THAT(fileNames(dir.path()), ElementsAre());
}

// Prints one line per tensor: name dtype shape sha256.
std::vector<std::string> readByPython(const std::string& path) {
  std::vector<std::string> lines;
  SpawnOptions spawn;
  spawn.argv = {"python3",
                std::string(std::getenv("TRAINYARD_SOURCE")) +
                    "/tests/runtime/checkpoint/read_safetensors.py",
                path};
  spawn.on_line = [&](std::string_view line) { lines.emplace_back(line); };
  {
    auto child = ChildProcess::spawn(spawn);
    EXPECT_TRUE(child.ok()) << child.status();
    const auto exit = child->wait(systemClock().now() + std::chrono::seconds(60));
    EXPECT_TRUE(exit.ok() && *exit == ExitState{}) << exit.status();
  }  // joins the thread that reads
  return lines;
}

std::vector<std::string> expectedTensors(std::int64_t step, bool slots) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const std::string& shape,
                       const std::string& variable, const std::string& slot, std::int64_t n) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < n; ++i) values.push_back(sampleValue(variable, slot, i, step));
    lines.push_back(
        fmt::format("{} F32 {} {}", name, shape, sha256Hex(std::as_bytes(std::span(values)))));
  };
  const auto all = [&](const std::string& variable, const std::string& shape, std::int64_t n) {
    add(variable, shape, variable, "", n);
    if (slots) {
      add(variable + "/momentum", shape, variable, "momentum", n);
      add(variable + "/rms", shape, variable, "rms", n);
    }
  };
  all("bias", "[3]", 3);
  all("conv", "[5,7]", 35);
  all("fc", "[100,3]", 300);
  const auto step32 = static_cast<std::int32_t>(step);
  lines.push_back("global_step I32 [] " + sha256Hex(std::as_bytes(std::span(&step32, 1))));
  return lines;
}

TEST(Export, AnotherParserReadsWholeTensors) {
  SampleDir dir;
  const auto manifest = writeSample(dir.path(), 3, 12, 5);
  ASSERT_TRUE(manifest.ok());
  const auto reader = CheckpointReader::open(dir.path(), *manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const bool slots : {false, true}) {
    const std::string path = dir / "out.safetensors";
    ASSERT_EQ(exportSafetensors(*reader, path, slots), absl::OkStatus());
    EXPECT_EQ(readByPython(path), expectedTensors(12, slots));
  }
}

TEST(Export, WhatLiesBesideFollows) {
  SampleDir dir;
  const auto manifest = writeSample(dir.path(), 2, 12, 5);
  ASSERT_TRUE(manifest.ok());
  const auto reader = CheckpointReader::open(dir.path(), *manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::vector<std::byte> bytes(3 * (1 << 20) + 5, std::byte{7});  // more than one piece
  const auto header = encodeSafetensorsHeader(
      {}, {{.name = "a.mean", .dtype = "U8", .shape = {3 * (1 << 20) + 5}}});
  ASSERT_TRUE(header.ok());
  const std::string beside = dir / "buffers.step-12.safetensors";
  {
    auto file = DurableFile::create(beside);
    ASSERT_TRUE(file.ok() && file->write(*header).ok() && file->write(bytes).ok());
    ASSERT_EQ(file->commit(), absl::OkStatus());
  }
  const std::string path = dir / "out.safetensors";
  ASSERT_EQ(exportSafetensors(*reader, path, false, beside), absl::OkStatus());
  auto expected = expectedTensors(12, false);
  expected.insert(expected.end(), "a.mean U8 [3145733] " + sha256Hex(bytes));
  EXPECT_EQ(readByPython(path), expected);
  ASSERT_EQ(exportChanges(nullptr, *reader, path, beside).status(), absl::OkStatus());
  EXPECT_EQ(readByPython(path), expected);

  // Two arrays of one name are no model.
  ASSERT_EQ(exportSafetensors(*reader, beside, false), absl::OkStatus());
  EXPECT_THAT(exportSafetensors(*reader, path, false, beside).ToString(), HasSubstr("twice"));
  EXPECT_TRUE(absl::IsNotFound(exportSafetensors(*reader, path, false, dir / "absent")));
}

TEST(Export, NamesThePathThatCannotBeWritten) {
  SampleDir dir;
  const auto manifest = writeSample(dir.path(), 1, 12, 5);
  const auto reader = CheckpointReader::open(dir.path(), *manifest);
  ASSERT_TRUE(reader.ok());
  const std::string path = dir / "absent/out.safetensors";
  EXPECT_THAT(exportSafetensors(*reader, path, false).ToString(), HasSubstr(path));
}

}  // namespace
}  // namespace trainyard::runtime
