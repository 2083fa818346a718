// What checkpoints ask of a storage, of each kind of it: of a folder of this machine, of another
// task's folder, and of the object store that TRAINYARD_TEST_STORAGE names ("s3://BUCKET",
// object_store_test.py).
#include <cstdlib>
#include <future>

#include "base/rpc/task_server.h"
#include "base/security/job_keys.h"
#include "base/security/random.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/checkpoint/claim.h"
#include "runtime/files/file_service.h"
#include "runtime/files/remote_files.h"
#include "runtime/storage/storage.h"
#include "tests/runtime/checkpoint/sample_checkpoint.h"

namespace trainyard::runtime {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A task that serves files of its folder.
class FilesTask {
 public:
  explicit FilesTask(const std::string& folder) : service_(folder, systemClock()) {
    const RuntimeKeys keys = deriveRuntimeKeys(std::string(64, 'a'));
    auto server = TaskServer::start({.what = "ps-0", .identity = keys.control}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto files = std::make_unique<RemoteFiles>(RemoteFiles::Options{.identity = keys.control},
                                               systemClock());
    files->setAddress(fmt::format("127.0.0.1:{}", server_->port()));
    useFilesOfTask(std::move(files));
  }
  ~FilesTask() { useFilesOfTask(nullptr); }

 private:
  FileService service_;
  std::unique_ptr<TaskServer> server_;
};

enum class Kind { kFolder, kTask, kStore };

class StorageTest : public testing::TestWithParam<Kind> {
 protected:
  static void SetUpTestSuite() { useObjectStores(variable); }
  StorageTest() {
    const std::string inside = randomHex(8);
    folder_ = fmt::format("{}/{}", local_.path(), inside);
    if (GetParam() == Kind::kStore)
      folder_ = fmt::format("{}/{}", variable("TRAINYARD_TEST_STORAGE"), inside);
    if (GetParam() == Kind::kTask) {
      EXPECT_EQ(makeStoredFolder(folder_), absl::OkStatus());
      task_ = std::make_unique<FilesTask>(folder_);
      folder_ = kRemoteFiles;
    }
    EXPECT_EQ(makeStoredFolder(folder_), absl::OkStatus());
  }
  ~StorageTest() override {
    const auto files = listStored(folder_);
    for (std::size_t i = 0; files.ok() && i < files->size(); ++i)
      EXPECT_EQ(removeStored(path((*files)[i].name)), absl::OkStatus());
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    const auto files = listStored(folder_);
    EXPECT_TRUE(files.ok()) << files.status();
    for (std::size_t i = 0; files.ok() && i < files->size(); ++i)
      result.push_back((*files)[i].name);
    return result;
  }
  std::string textOf(const std::string& name) const {
    const auto text = readStored(path(name), 1 << 20);
    return text.ok() ? *text : std::string(text.status().message());
  }

  SampleDir local_;
  std::unique_ptr<FilesTask> task_;
  std::string folder_;
};

TEST_P(StorageTest, AFileAppearsWithItsCommit) {
  auto file = createStored(path("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->write("some "), absl::OkStatus());
  ASSERT_EQ((*file)->write("text"), absl::OkStatus());
  ASSERT_EQ((*file)->sync(), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(openStored(path("a")).status()));
  ASSERT_EQ((*file)->commit(), absl::OkStatus());
  EXPECT_EQ(textOf("a"), "some text");
  EXPECT_EQ((*file)->size(), 9U);
  EXPECT_EQ((*file)->sha256(), sha256Hex(std::string_view("some text")));
  ASSERT_EQ(writeStored(path("a"), "other"), absl::OkStatus());
  EXPECT_EQ(textOf("a"), "other");
  ASSERT_EQ(writeStored(path("empty"), ""), absl::OkStatus());
  EXPECT_EQ(textOf("empty"), "");
}

TEST_P(StorageTest, WhatIsNotCommittedLeavesNothing) {
  {
    const auto file = createStored(path("a"));
    ASSERT_TRUE(file.ok()) << file.status();
    const std::vector<std::byte> much(20u << 20, std::byte{7});
    ASSERT_EQ((*file)->write(much), absl::OkStatus());
    ASSERT_EQ((*file)->sync(), absl::OkStatus());
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_P(StorageTest, OneOfSeveralGetsAnExclusiveName) {
  constexpr int kWriters = 8;
  std::vector<std::future<Status>> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.push_back(std::async(std::launch::async, [this, i]() -> Status {
      TY_ASSIGN_OR_RETURN(const auto file, createStored(path("one"), Writers::kSeveral));
      TY_RETURN_IF_ERROR(file->write(fmt::format("of {}", i)));
      return file->commitExclusively();
    }));
  }
  int winner = -1;
  for (int i = 0; i < kWriters; ++i) {
    const Status status = writers[static_cast<std::size_t>(i)].get();
    if (status.ok()) {
      EXPECT_EQ(winner, -1) << "two have it";
      winner = i;
    } else {
      EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
    }
  }
  EXPECT_EQ(textOf("one"), fmt::format("of {}", winner));
  EXPECT_THAT(names(), ElementsAre("one"));
}

TEST_P(StorageTest, ListsWhatIsDirectlyInAFolder) {
  ASSERT_EQ(writeStored(path("b"), "12"), absl::OkStatus());
  ASSERT_EQ(writeStored(path("a &?%+"), "1"), absl::OkStatus());
  const bool flat = GetParam() == Kind::kTask;  // nothing is beside its folder
  if (!flat) {
    ASSERT_EQ(writeStored(folder_ + "-beside", "1"), absl::OkStatus());
  }
  EXPECT_THAT(names(), UnorderedElementsAre("b", "a &?%+"));
  const auto files = listStored(folder_);
  for (const StoredFile& file : *files) {
    EXPECT_EQ(file.size, file.name == "b" ? 2U : 1U);
    EXPECT_GT(file.modified_ns, 1'700'000'000'000'000'000);
  }
  EXPECT_EQ(textOf("a &?%+"), "1");
  EXPECT_EQ(removeStored(path("b")), absl::OkStatus());
  EXPECT_EQ(removeStored(path("b")), absl::OkStatus()) << "it is gone, as was wanted";
  if (!flat) {
    EXPECT_EQ(removeStored(folder_ + "-beside"), absl::OkStatus());
  }
  EXPECT_THAT(listStored(folder_ + "/absent").value(), IsEmpty());
}

TEST_P(StorageTest, AFolderOfMoreThanAThousandFiles) {
  constexpr int kFiles = 1100;
  std::vector<std::future<Status>> writers;
  for (int w = 0; w < 4; ++w) {
    writers.push_back(std::async(std::launch::async, [this, w]() -> Status {
      for (int i = w; i < kFiles; i += 4)
        TY_RETURN_IF_ERROR(writeStored(path(fmt::format("f{}", i)), "x"));
      return absl::OkStatus();
    }));
  }
  for (auto& writer : writers) ASSERT_EQ(writer.get(), absl::OkStatus());
  EXPECT_EQ(names().size(), static_cast<std::size_t>(kFiles));
}

TEST_P(StorageTest, ALargeFileIsReadInPartsAndAsAWhole) {
  std::vector<std::byte> bytes(50'000'001);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 7);
  auto file = createStored(path("large"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->write(std::span(bytes).first(30'000'000)), absl::OkStatus());
  ASSERT_EQ((*file)->write(std::span(bytes).subspan(30'000'000)), absl::OkStatus());
  ASSERT_EQ((*file)->commitExclusively(), absl::OkStatus());
  const auto opened = openStored(path("large"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_EQ((*opened)->size(), bytes.size());
  const auto expectPart = [&](std::size_t at, std::size_t size) {
    std::vector<std::byte> part(size);
    ASSERT_EQ((*opened)->read(at, part), absl::OkStatus());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.begin() + static_cast<long>(at))) << at;
  };
  const auto expectParts = [&] {
    expectPart(0, 8);
    expectPart(16'777'210, 40);
    expectPart(10'000'000, 30'000'000);
    expectPart(50'000'000, 1);
    std::byte beyond[2];
    EXPECT_TRUE(absl::IsDataLoss((*opened)->read(50'000'000, beyond)));
  };
  expectParts();
  Sha256 streamed;
  std::vector<std::byte> piece(1'000'003);
  const auto stream = (*opened)->stream();
  for (;;) {
    const auto got = stream->next(piece);
    ASSERT_TRUE(got.ok()) << got.status();
    if (*got == 0) break;
    streamed.update(std::span(piece).first(*got));
  }
  EXPECT_EQ(streamed.hexDigest(), (*file)->sha256());
  Sha256 hash;
  ASSERT_EQ((*opened)->readThrough([&](auto piece) { hash.update(piece); }), absl::OkStatus());
  EXPECT_EQ(hash.hexDigest(), (*file)->sha256());
  ASSERT_EQ(removeStored(path("large")), absl::OkStatus());
  expectParts();  // an open file stays; of an object the copy does
}

TEST_P(StorageTest, CheckpointsAreFoundWholeAndPruned) {
  std::vector<Manifest> written;
  for (const std::int64_t step : {10, 20, 30}) {
    const auto manifest = writeSample(folder_, 2, step, 1);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    written.push_back(*manifest);
  }
  EXPECT_TRUE(absl::IsAlreadyExists(commitManifest(folder_, written[2])));
  EXPECT_EQ(highestEpochNamed(folder_).value(), 1);
  ASSERT_EQ(verifyFiles(folder_, written[2]), absl::OkStatus());
  const auto reader = CheckpointReader::open(folder_, written[2]);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> fc(300);
  ASSERT_EQ(reader->read("fc", "momentum", 0, fc), absl::OkStatus());
  for (std::int64_t i = 0; i < 300; ++i)
    ASSERT_EQ(fc[static_cast<std::size_t>(i)], sampleValue("fc", "momentum", i, 30));
  ASSERT_EQ(prune(folder_, 1), absl::OkStatus());
  const std::vector<Manifest> kept = listManifests(folder_, nullptr);
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].step, 30);
  EXPECT_EQ(findManifest(folder_).value(), path(kept[0].fileName()));
  ASSERT_EQ(removeStored(path(kept[0].files[1].name)), absl::OkStatus());
  EXPECT_TRUE(absl::IsDataLoss(verifyFiles(folder_, kept[0])));
}

TEST_P(StorageTest, ALaterWriterDisplacesTheOneBefore) {
  Claim first(folder_, {"uid", "ps-0", 1, 1}), second(folder_, {"uid", "ps-0", 2, 1});
  ASSERT_EQ(first.hold(), absl::OkStatus());
  ASSERT_EQ(second.hold(), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(first.hold()));
  EXPECT_EQ(second.hold(), absl::OkStatus());
  EXPECT_THAT(names(), Contains("writer-2.json"));
}

std::vector<Kind> kinds() {
  if (std::getenv("TRAINYARD_TEST_STORAGE") != nullptr) return {Kind::kStore};
  return {Kind::kFolder, Kind::kTask};
}

std::string nameOf(const testing::TestParamInfo<Kind>& info) {
  if (info.param == Kind::kFolder) return "folder";
  return info.param == Kind::kTask ? "task" : "store";
}

INSTANTIATE_TEST_SUITE_P(Kinds, StorageTest, testing::ValuesIn(kinds()), nameOf);

}  // namespace
}  // namespace trainyard::runtime
