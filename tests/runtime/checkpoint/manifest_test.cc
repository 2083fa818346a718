#include <filesystem>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/manifest_json.h"
#include "runtime/checkpoint/names.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::runtime {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

Manifest complete() {
  Manifest m = sampleManifest(1200, 5);
  m.files = {{"ps-0.step-1200.e5.i1.safetensors", 4096, std::string(64, '0')},
             {"ps-1.step-1200.e5.i3.safetensors", 8192, std::string(64, 'f')}};
  return m;
}

TEST(ManifestJson, RoundTrip) {
  const Manifest m = complete();
  const auto back = manifestFromJson(manifestToJson(m));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(manifestToJson(*back), manifestToJson(m));
  EXPECT_EQ(back->files[1].name, m.files[1].name);
  EXPECT_EQ(back->files[1].size, 8192u);
  EXPECT_EQ(back->epochs[1].first_position, 768);
  EXPECT_EQ(back->variables[2].shape, (std::vector<std::int64_t>{100, 3}));
  EXPECT_EQ(back->position, 1200 * 256);
  EXPECT_EQ(back->slots, m.slots);
  EXPECT_EQ(back->unix_ms, m.unix_ms);
  EXPECT_EQ(back->max_ps, 16);
}

TEST(ManifestJson, AFileSaysItselfWhetherItIsADelta) {
  Manifest m = complete();
  m.base = "step-1100.e5.json";
  m.files[1].delta = true;
  const auto back = manifestFromJson(manifestToJson(m));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->base, m.base);
  EXPECT_FALSE(back->files[0].delta);
  EXPECT_TRUE(back->files[1].delta);
}

struct BadCase {
  const char* pointer;  // JSON pointer of what is replaced; "-/x" removes /x
  Json value;
  const char* message;
};

TEST(ManifestJson, EveryWrongFieldIsNamed) {
  const std::string digits(64, '0');
  const std::vector<BadCase> cases = {
      {"/format", 2, "format: 2, this release reads format 1"},
      {"/format", "1", "format: \"1\", expected a whole number"},
      {"/step", -1, "step: -1, expected a whole number from 0"},
      {"/step", 1.5, "step: 1.5, expected a whole number"},
      {"/step", 18446744073709551615ull, "step: 18446744073709551615, expected"},
      {"-/position", nullptr, "position: is missing"},
      {"/surprise", 1, "surprise: unknown field"},
      {"/jobUid", 7, "jobUid: expected a string"},
      {"/jobUid", std::string(5000, 'x'), "jobUid: longer than 4096 bytes"},
      {"/epochs/1/ranks", 5000, "epochs[1].ranks: 5000, expected a whole number from 0 to 4096"},
      {"/epochs", Json::object(), "epochs: expected a list"},
      {"/slots/0", 1, "slots[0]: expected a string"},
      {"/slots/1", "rms", "slots[1]: 'rms', expected a name of its own"},
      {"/slots/1", "a/b", "slots[1]: 'a/b'"},
      {"/variables", Json::array(), "variables: is empty"},
      {"/variables/1/dtype", "F64", "variables[1].dtype: 'F64', expected F32 or I32"},
      {"/variables/1/name", "fc", "variables[2].name: 'fc' occurs twice"},
      {"/variables/1/name", "a[0:1]", "variables[1].name: 'a[0:1]', expected a name without"},
      {"/variables/1/shape/0", 0, "variables[1].shape: expected positive dimensions"},
      {"/variables/1/shape/0", -5, "variables[1].shape[0]: expected a whole number"},
      {"/variables/1/shape", Json({1ll << 40, 1ll << 40}), "variables[1].shape: expected positive"},
      {"/variables/1/extra", 1, "variables[1].extra: unknown field"},
      {"/files", Json::array(), "files: is empty"},
      {"/files/0/name", "../ps-0.safetensors",
       "files[0].name: '../ps-0.safetensors', expected a file name"},
      {"/files/0/name", "/etc/passwd", "files[0].name"},
      {"/files/0/name", "..", "files[0].name"},
      {"/files/1/name", "ps-0.step-1200.e5.i1.safetensors", "files[1].name: 'ps-0.step-1200"},
      {"/files/1/sha256", "abc", "files[1].sha256: expected 64 hex digits"},
      {"/files/1/size", -1, "files[1].size: -1"},
      {"/files/0", 3, "files[0]: expected an object"},
      {"/files/1/delta", 1, "files[1].delta: expected true or false"},
      {"/files/1/delta", true, "files[1].delta: the manifest names no base"},
  };
  for (const BadCase& c : cases) {
    Json json = Json::parse(manifestToJson(complete()));
    if (c.pointer[0] == '-') {
      json.erase(c.pointer + 2);
    } else {
      json[Json::json_pointer(c.pointer)] = c.value;
    }
    const auto result = manifestFromJson(json.dump());
    EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << c.pointer;
    EXPECT_THAT(result.status().ToString(), HasSubstr(c.message));
  }
}

TEST(ManifestJson, OtherTextIsRefused) {
  for (const char* text :
       {"", "[]", "{", "null", "\xff\xfe", "{\"format\":1}", "{\"weights\": 1}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(manifestFromJson(text).status())) << text;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(manifestFromJson(std::string(1 << 20, '[')).status()));
}

// A file of a few megabytes is enough for more levels than a stack has room for.
TEST(ManifestJson, ListsInListsWithoutEndAreRefused) {
  constexpr std::size_t kLevels = 2'000'000;
  Json json = Json::parse(manifestToJson(complete()));
  json["step"] = "HERE";
  std::string text = json.dump();
  const std::string deep = std::string(kLevels, '[') + std::string(kLevels, ']');
  text.replace(text.find("\"HERE\""), 6, deep);
  const auto manifest = manifestFromJson(text);
  ASSERT_FALSE(manifest.ok());
  EXPECT_THAT(std::string(manifest.status().message()), HasSubstr("nested too deeply"));
}

TEST(Commit, IsExclusive) {
  SampleDir dir;
  ASSERT_EQ(commitManifest(dir.path(), complete()), absl::OkStatus());
  const std::string before = readText(dir / "step-1200.e5.json");
  Manifest other = complete();
  other.position = 1;
  EXPECT_TRUE(absl::IsAlreadyExists(commitManifest(dir.path(), other)));
  EXPECT_EQ(readText(dir / "step-1200.e5.json"), before);
  EXPECT_THAT(fileNames(dir.path()), ElementsAre("step-1200.e5.json"));
}

// A crash between link() and unlink() leaves the manifest under two names.
TEST(Commit, ATwinFromACrashDoesNotHarmTheManifest) {
  SampleDir dir;
  ASSERT_EQ(commitManifest(dir.path(), complete()), absl::OkStatus());
  std::filesystem::create_hard_link(dir / "step-1200.e5.json", dir / "step-1200.e5.json.tmp");
  EXPECT_TRUE(absl::IsAlreadyExists(commitManifest(dir.path(), complete())));
  EXPECT_TRUE(readManifest(dir / "step-1200.e5.json").ok());
}

TEST(Commit, RefusesWhatCouldNotBeRead) {
  SampleDir dir;
  Manifest m = complete();
  m.files[0].name = "../escape";
  EXPECT_TRUE(absl::IsInvalidArgument(commitManifest(dir.path(), m)));
  EXPECT_THAT(fileNames(dir.path()), ElementsAre());
}

TEST(Read, NamesFileAndField) {
  SampleDir dir;
  EXPECT_TRUE(absl::IsNotFound(readManifest(dir / "step-1.e1.json").status()));
  writeText(dir / "step-1.e1.json", "{\"step\": 3}");
  EXPECT_THAT(readManifest(dir / "step-1.e1.json").status().ToString(),
              HasSubstr(dir / "step-1.e1.json: format: is missing"));
  writeText(dir / "step-2.e1.json", manifestToJson(complete()));
  EXPECT_THAT(readManifest(dir / "step-2.e1.json").status().ToString(),
              HasSubstr("holds step 1200 of epoch 5"));
  EXPECT_THAT(readManifest(dir / "job.json").status().ToString(),
              HasSubstr("expected step-N.eM.json"));
}

TEST(List, NewestFirstAndProblemsNamed) {
  SampleDir dir;
  for (const auto& [step, epoch] : {std::pair{9, 1}, {100, 2}, {100, 3}, {20, 4}}) {
    Manifest m = complete();
    m.step = step;
    m.epoch = epoch;
    ASSERT_EQ(commitManifest(dir.path(), m), absl::OkStatus());
  }
  writeText(dir / "step-7.e1.json", "not a manifest");
  writeText(dir / "notes.json", "{}");
  std::vector<std::string> problems, names;
  for (const Manifest& m : listManifests(dir.path(), &problems)) names.push_back(m.fileName());
  EXPECT_THAT(names, ElementsAre("step-100.e3.json", "step-100.e2.json", "step-20.e4.json",
                                 "step-9.e1.json"));
  EXPECT_THAT(problems, ElementsAre(dir / "step-7.e1.json: not a JSON object"));
}

TEST(List, AnAbsentDirectoryHoldsNone) {
  SampleDir dir;
  std::vector<std::string> problems;
  EXPECT_TRUE(listManifests(dir / "absent", &problems).empty());
  EXPECT_TRUE(problems.empty());
}

TEST(Find, AFileADirectoryOfCheckpointsOrARunDirectory) {
  SampleDir dir;
  std::filesystem::create_directories(dir / "run/checkpoints");
  const std::string inside = dir / "run/checkpoints";
  for (const std::int64_t step : {9, 100}) {
    Manifest m = complete();
    m.step = step;
    ASSERT_EQ(commitManifest(inside, m), absl::OkStatus());
  }
  const std::string newest = inside + "/" + listManifests(inside, nullptr).front().fileName();
  EXPECT_THAT(newest, HasSubstr("/step-100.e"));
  EXPECT_EQ(findManifest(dir / "run").value_or(""), newest);
  EXPECT_EQ(findManifest(inside).value_or(""), newest);
  EXPECT_EQ(findManifest(newest).value_or(""), newest);
  EXPECT_TRUE(absl::IsNotFound(findManifest(dir / "absent").status()));
  const Status nothing = findManifest(dir.path()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(nothing));
  EXPECT_THAT(nothing.ToString(), HasSubstr("holds no checkpoint"));
  // What cannot be read might be the newest.
  writeText(dir / "run/checkpoints/step-200.e1.json", "not a manifest");
  EXPECT_THAT(findManifest(dir / "run").status().ToString(),
              HasSubstr("step-200.e1.json: not a JSON object"));
}

TEST(HighestEpochNamed, CountsWhatCannotBeRead) {
  SampleDir dir;
  EXPECT_EQ(highestEpochNamed(dir / "absent").value(), 0);
  EXPECT_EQ(highestEpochNamed(dir.path()).value(), 0);
  for (const char* name : {"step-9.e3.json", "step-1.e7.json", "step-1.e8.json.tmp",
                           "ps-0.step-1.e9.i1-1.safetensors", "step-1.e9223372036854775807.json"}) {
    writeText(dir / name, "no manifest");
  }
  EXPECT_EQ(highestEpochNamed(dir.path()).value(), 7);
}

TEST(Names, TensorNames) {
  const auto name = parseTensorName(shardTensorName("layer/w.1", "rms", 5, 17));
  ASSERT_TRUE(name);
  EXPECT_EQ(name->variable, "layer/w.1");
  EXPECT_EQ(name->slot, "rms");
  EXPECT_EQ(name->begin, 5);
  EXPECT_EQ(name->end, 17);
  EXPECT_EQ(parseTensorName("w[0:1]")->slot, "");
  for (const char* bad : {"", "w", "[0:1]", "w[0:1", "w[1:1]", "w[2:1]", "w[-1:1]", "w[0:1]x",
                          "w[0:1]/", "w[00:1]", "w[0:99999999999999999999]", "w[0]", "w[:]"}) {
    EXPECT_FALSE(parseTensorName(bad)) << bad;
  }
}

TEST(Names, ManifestNames) {
  EXPECT_EQ(parseManifestName("step-1200.e5.json"), (StepName{1200, 5}));
  for (const char* bad : {"step-1200.e5.json.tmp", "step-.e5.json", "step-01.e5.json",
                          "step--1.e5.json", "step-1.json", "xstep-1.e5.json", "step-1.e5.jso"}) {
    EXPECT_FALSE(parseManifestName(bad)) << bad;
  }
  EXPECT_EQ(findStepName("ps-1.step-7.e2.i3.safetensors.tmp"), (StepName{7, 2}));
  EXPECT_FALSE(findStepName("ps-1.safetensors"));
}

}  // namespace
}  // namespace trainyard::runtime
