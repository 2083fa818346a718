// Damage, crashes and full disks: the former checkpoint stays restorable, what is damaged is named.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/core/failpoint.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Damage : public testing::Test {
 protected:
  void SetUp() override {
    auto manifest = writeSample(dir_.path(), 2, 12, 5);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    manifest_ = *std::move(manifest);
    second_ = dir_ / manifest_.files[1].name;
  }
  // Both ways of opening name the second file and say `what`.
  void expectDamaged(const std::string& what) {
    for (const Status& status : {verifyFiles(dir_.path(), manifest_),
                                 CheckpointReader::open(dir_.path(), manifest_).status()}) {
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(status.ToString(), HasSubstr(second_ + ": " + what));
    }
  }
  SampleDir dir_;
  Manifest manifest_;
  std::string second_;
};

TEST_F(Damage, AnyByte) {
  const std::string good = readText(second_);
  for (std::size_t at = 0; at < good.size(); at += 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    writeText(second_, bad);
    expectDamaged("SHA-256");
  }
  writeText(second_, good);
  EXPECT_EQ(verifyFiles(dir_.path(), manifest_), absl::OkStatus());
}

// Half of each variable is in the second file.
TEST_F(Damage, AnyByteOfWhatIsRead) {
  const std::string good = readText(second_);
  int opened = 0;
  for (std::size_t at = 0; at < good.size(); at += 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    writeText(second_, bad);
    const auto reader =
        CheckpointReader::open(dir_.path(), manifest_, CheckpointReader::Verify::kWhatIsRead);
    if (!reader.ok()) {  // where its arrays are is read at once
      EXPECT_TRUE(absl::IsDataLoss(reader.status())) << reader.status();
      continue;
    }
    ++opened;
    std::vector<float> values(10);
    EXPECT_EQ(reader->read("fc", "", 0, values), absl::OkStatus());
    EXPECT_EQ(values[3], sampleValue("fc", "", 3, 12));
    for (int again = 0; again < 2; ++again) {
      const Status status = reader->read("fc", "", 290, values);
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_THAT(status.ToString(), HasSubstr(second_ + ": SHA-256"));
    }
  }
  EXPECT_GT(opened, 10);
}

TEST_F(Damage, Truncated) {
  const auto size = fs::file_size(second_);
  fs::resize_file(second_, size - 1);
  expectDamaged(fmt::format("{} bytes long, expected {}", size - 1, size));
}

TEST_F(Damage, Missing) {
  fs::remove(second_);
  expectDamaged("is missing");
}

TEST_F(Damage, NotAFile) {
  fs::remove(second_);
  fs::create_directory(second_);
  expectDamaged("is not a regular file");
}

// Files whose hash is right but that do not make up the manifest's variables.
class Foreign : public testing::Test {
 protected:
  Status openWith(const std::vector<ShardTensor>& tensors) {
    Manifest m = sampleManifest(1, 1);
    m.variables = {{"w", {4}, "F32"}};
    m.slots = {"rms"};
    auto info = writeShard(dir_.path(), "a.safetensors", tensors);
    if (!info.ok()) return info.status();
    m.files = {*info};
    return CheckpointReader::open(dir_.path(), m).status();
  }
  ShardTensor part(const std::string& name, const std::string& slot, std::int64_t begin,
                   std::int64_t end, bool is_int32 = false) {
    return {
        name,     slot,
        begin,    end,
        is_int32, std::as_bytes(std::span(values_).first(static_cast<std::size_t>(end - begin)))};
  }
  SampleDir dir_;
  std::vector<float> values_ = std::vector<float>(16, 1.0f);
};

TEST_F(Foreign, GapsOverlapsAndStrangersAreNamed) {
  EXPECT_EQ(openWith({part("w", "", 0, 4)}), absl::OkStatus());
  EXPECT_THAT(openWith({part("w", "", 0, 3)}).ToString(),
              HasSubstr("w: element 3 of 4 is in none"));
  EXPECT_THAT(openWith({part("w", "", 1, 4)}).ToString(),
              HasSubstr("w: element 0 of 4 is in none"));
  EXPECT_THAT(openWith({part("w", "", 0, 3), part("w", "", 2, 4)}).ToString(),
              HasSubstr("w: stands in its files more than once"));
  EXPECT_THAT(openWith({part("w", "", 0, 4), part("w", "rms", 0, 2)}).ToString(),
              HasSubstr("w/rms: element 2 of 4"));
  EXPECT_THAT(openWith({part("w", "", 0, 5)}).ToString(),
              HasSubstr("'w[0:5]': not in the manifest"));
  EXPECT_THAT(openWith({part("v", "", 0, 4)}).ToString(),
              HasSubstr("'v[0:4]': not in the manifest"));
  EXPECT_THAT(openWith({part("w", "", 0, 4), part("w", "adam", 0, 4)}).ToString(),
              HasSubstr("'w[0:4]/adam': the manifest has no such slot"));
  EXPECT_THAT(openWith({part("w", "", 0, 4, true)}).ToString(),
              HasSubstr("dtype or shape differs"));
}

TEST(Safetensors, BadHeadersAreNamed) {
  const auto decode = [](const std::string& text, std::uint64_t data) {
    return decodeSafetensorsHeader(text, 8 + text.size() + data).status().ToString();
  };
  const std::string good = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(decode(good, 8), "OK");
  EXPECT_THAT(decode(good, 9), HasSubstr("bytes long, expected"));
  EXPECT_THAT(decode("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(decode(R"({"w":1})", 0), HasSubstr("'w': expected an object"));
  EXPECT_THAT(decode(R"({"w":{"dtype":"F8","shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("dtype: F8 is not known"));
  EXPECT_THAT(decode(R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("expected 4 bytes"));
  EXPECT_THAT(decode(R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
              HasSubstr("shape"));
  EXPECT_THAT(decode(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              HasSubstr("expected 12"));
  EXPECT_THAT(decode(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
              HasSubstr("expected 8"));
  EXPECT_THAT(decode(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
              HasSubstr("expected 0"));
  EXPECT_THAT(
      decode(R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      HasSubstr("overflows"));
  EXPECT_THAT(decode(R"({"__metadata__":{"a":1}})", 0), HasSubstr("expected a string"));
}

class Failpoints : public testing::Test {
 protected:
  void TearDown() override { ASSERT_EQ(configureFailpoints("", "ps-0"), absl::OkStatus()); }
  void set(const std::string& config) {
    ASSERT_EQ(configureFailpoints(config, "ps-0"), absl::OkStatus());
  }
  SampleDir dir_;
};

TEST_F(Failpoints, AFailedWriteLeavesNothing) {
  for (const char* name : {"checkpoint.shard.write", "checkpoint.shard.rename"}) {
    set(fmt::format("{}=error@7", name));
    const Status status = writeSampleShards(dir_.path(), 1, 7, 1).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(dir_ / "ps-0.step-7.e1.i1.safetensors"));
    EXPECT_THAT(fileNames(dir_.path()), IsEmpty());
  }
  set("checkpoint.manifest.commit=error@7");
  EXPECT_TRUE(absl::IsUnavailable(writeSample(dir_.path(), 1, 7, 1).status()));
  EXPECT_THAT(fileNames(dir_.path()), ElementsAre("ps-0.step-7.e1.i1.safetensors"));
}

// Runs `body` in a child process; returns what it wrote, "" if it died.
std::string inChild(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "";
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string text = body();
    const bool whole =
        ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(whole ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  ::waitpid(pid, nullptr, 0);
  return text;
}

TEST_F(Failpoints, AfterACrashTheLeftoversAreOverwrittenAndPruned) {
  ASSERT_TRUE(writeSample(dir_.path(), 2, 6, 1).ok());
  const auto crashAt = [&](const char* name, std::int64_t step) {
    const std::string answer = inChild([&] {
      (void)configureFailpoints(fmt::format("{}=crash@{}", name, step), "ps-0");
      (void)writeSample(dir_.path(), 2, step, 1);
      return std::string("survived");
    });
    EXPECT_EQ(answer, "") << name;
  };
  crashAt("checkpoint.shard.write", 7);
  crashAt("checkpoint.shard.rename", 8);
  crashAt("checkpoint.manifest.commit", 9);
  EXPECT_THAT(fileNames(dir_.path()), Contains("ps-0.step-7.e1.i1.safetensors.tmp"));
  EXPECT_THAT(fileNames(dir_.path()), Contains("ps-0.step-8.e1.i1.safetensors.tmp"));
  EXPECT_THAT(fileNames(dir_.path()), Contains("step-9.e1.json.tmp"));

  std::vector<std::string> problems;
  const std::vector<Manifest> manifests = listManifests(dir_.path(), &problems);
  ASSERT_EQ(manifests.size(), 1u);
  EXPECT_EQ(manifests[0].step, 6);
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_TRUE(CheckpointReader::open(dir_.path(), manifests[0]).ok());

  ASSERT_TRUE(writeSample(dir_.path(), 2, 7, 1).ok());  // the same name again
  ASSERT_TRUE(writeSample(dir_.path(), 2, 10, 1).ok());
  fs::last_write_time(dir_ / "step-10.e1.json",
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  ASSERT_EQ(prune(dir_.path(), 2), absl::OkStatus());
  EXPECT_THAT(fileNames(dir_.path()),
              ElementsAre("ps-0.step-10.e1.i1.safetensors", "ps-0.step-7.e1.i1.safetensors",
                          "ps-1.step-10.e1.i1.safetensors", "ps-1.step-7.e1.i1.safetensors",
                          "step-10.e1.json", "step-7.e1.json"));
}

// 1 MiB in one tensor.
Status writeLarge(const std::string& dir) {
  const std::vector<float> values(1 << 18, 1.0f);
  return writeShard(dir, "a.step-3.e1.safetensors",
                    {{"w", "", 0, 1 << 18, false, std::as_bytes(std::span(values))}})
      .status();
}

// The kernel takes the first part (a short write), then refuses the rest.
TEST(FullDisk, FileSizeLimit) {
  SampleDir dir;
  const std::string answer = inChild([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{300'000, 300'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return std::string("setrlimit failed");
    return writeLarge(dir.path()).ToString();
  });
  EXPECT_THAT(answer, HasSubstr("RESOURCE_EXHAUSTED: " + (dir / "a.step-3.e1.safetensors") +
                                ": cannot write after 300000 bytes: no space left"));
  EXPECT_THAT(fileNames(dir.path()), IsEmpty());
}

TEST(FullDisk, ASmallFileSystem) {
  SampleDir dir;
  const std::string answer = inChild([&] {
    // A mount namespace of its own: the mount ends with this process.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=600k") != 0) {
      return fmt::format("cannot mount: {}", std::strerror(errno));
    }
    const Status full = writeLarge(dir.path());
    const std::size_t left = fileNames(dir.path()).size();
    // With the space given back a small checkpoint fits again.
    const Status after = writeSample(dir.path(), 2, 1, 1).status();
    return fmt::format("{}; {} left; {}", full.ToString(), left, after.ToString());
  });
  if (answer.substr(0, 13) == "cannot mount:") GTEST_SKIP() << answer;
  EXPECT_THAT(answer, HasSubstr("RESOURCE_EXHAUSTED: " + dir.path()));
  EXPECT_THAT(answer, HasSubstr("no space left; 0 left; OK"));
}

TEST(Directory, AbsentIsNamed) {
  SampleDir dir;
  EXPECT_THAT(writeLarge(dir / "absent").ToString(),
              HasSubstr(dir / "absent/a.step-3.e1.safetensors"));
  EXPECT_THAT(commitManifest(dir / "absent", sampleManifest(1, 1)).ToString(),
              HasSubstr(dir / "absent"));
}

}  // namespace
}  // namespace trainyard::runtime
