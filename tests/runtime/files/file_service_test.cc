// Files of another task, where answers are lost and tasks end; the rest is
// tests/conformance/storage.
#include "runtime/files/file_service.h"

#include <filesystem>
#include <optional>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/task_server.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/files/remote_files.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

using testing::HasSubstr;

// Answers as gRPC does for a server that ends before it has looked at a call.
class EndingFiles : public v1::CheckpointFiles::CallbackService {
 public:
  grpc::ServerUnaryReactor* ReadFile(grpc::CallbackServerContext* context,
                                     const v1::ReadFileRequest* /*request*/,
                                     v1::ReadFileReply* /*reply*/) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::CANCELLED);
    if (!asked.HasBeenNotified()) asked.Notify();
    return reactor;
  }
  absl::Notification asked;
};

class FileServiceTest : public testing::Test {
 protected:
  FileServiceTest() { serve(); }

  void serve() { serve(*service_); }
  void serve(grpc::Service& service) {
    auto server =
        TaskServer::start({.what = "ps-0", .port = port_, .identity = keys_.control}, {&service});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = static_cast<std::uint16_t>(server_->port());
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  std::unique_ptr<RemoteFiles> files(const std::string& address, Duration patience) const {
    auto files =
        std::make_unique<RemoteFiles>(RemoteFiles::Options{.identity = keys_.control,
                                                           .patience = patience,
                                                           .pause = std::chrono::milliseconds(10)},
                                      systemClock());
    files->setAddress(address);
    return files;
  }
  std::unique_ptr<v1::CheckpointFiles::Stub> stub() const {
    return v1::CheckpointFiles::NewStub(
        openSecureChannel(address(), keys_.control, kRuntimeServerName));
  }
  // The codes of the answers, as a client that did not hear the first one would ask.
  grpc::StatusCode write(const std::string& upload, std::uint64_t offset, const std::string& bytes,
                         const std::string& name = "a") {
    v1::WriteFileRequest request;
    request.set_upload(upload);
    request.set_name(name);
    request.set_offset(offset);
    request.set_bytes(bytes);
    grpc::ClientContext context;
    v1::WriteFileReply reply;
    return stub()->WriteFile(&context, request, &reply).error_code();
  }
  grpc::StatusCode end(const std::string& upload, const std::string& content) {
    v1::EndFileRequest request;
    request.set_upload(upload);
    request.set_commit(true);
    request.set_exclusively(true);
    request.set_size(content.size());
    request.set_sha256(sha256Hex(std::string_view(content)));
    grpc::ClientContext context;
    v1::EndFileReply reply;
    return stub()->EndFile(&context, request, &reply).error_code();
  }

  TempDir dir_;
  FakeClock clock_;
  // As a process of the task's that begins again: it has nothing of what the former one had open.
  void beginAgain() {
    server_.reset();
    service_.emplace(dir_.path(), clock_);
    serve();
  }
  const RuntimeKeys keys_ = deriveRuntimeKeys(std::string(64, 'a'));
  std::optional<FileService> service_{std::in_place, dir_.path(), clock_};
  std::uint16_t port_ = 0;
  std::unique_ptr<TaskServer> server_;
};

TEST_F(FileServiceTest, WhatIsSentAgainCountsOnce) {
  EXPECT_EQ(write("u", 0, "some "), grpc::OK);
  EXPECT_EQ(write("u", 0, "some "), grpc::OK);
  EXPECT_EQ(write("u", 5, "text"), grpc::OK);
  EXPECT_EQ(write("u", 5, "text"), grpc::OK);
  EXPECT_EQ(write("u", 20, "more"), grpc::StatusCode::ABORTED);
  EXPECT_EQ(end("u", "some text"), grpc::OK);
  EXPECT_EQ(end("u", "some text"), grpc::OK) << "it exists, but by us";
  EXPECT_EQ(readStored(dir_.path() / "a", 100).value(), "some text");
  EXPECT_EQ(write("v", 0, "other"), grpc::OK);
  EXPECT_EQ(end("v", "other"), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(FileServiceTest, WhatHasChangedOnItsWayIsNotKept) {
  EXPECT_EQ(write("u", 0, "some text"), grpc::OK);
  EXPECT_EQ(end("u", "some tent"), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(end("w", "never begun"), grpc::StatusCode::ABORTED);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(FileServiceTest, WhatNobodyEndsGoes) {
  EXPECT_EQ(write("u", 0, "some "), grpc::OK);
  clock_.advance(std::chrono::minutes(6));
  EXPECT_EQ(write("v", 0, "other", "b"), grpc::OK);
  EXPECT_EQ(write("u", 5, "text"), grpc::StatusCode::ABORTED);
}

TEST_F(FileServiceTest, NobodyLeavesTheFolder) {
  for (const char* name : {"", ".", "..", "../a", "a/b", ".hidden"})
    EXPECT_EQ(write("u", 0, "x", name), grpc::StatusCode::INVALID_ARGUMENT) << name;
  const auto files = this->files(address(), std::chrono::seconds(10));
  EXPECT_TRUE(absl::IsInvalidArgument(files->open("task://checkpoints/../a").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(files->remove("task://else/a")));
}

TEST_F(FileServiceTest, RecordsOfTheChiefHaveAFolderOfTheirOwn) {
  const std::filesystem::path records = dir_.path() / "records";
  EXPECT_EQ(write("u", 0, "x", "records/metrics.jsonl"), grpc::StatusCode::INVALID_ARGUMENT);
  server_.reset();
  service_.emplace(dir_.path(), clock_, records);
  serve();
  for (const char* name : {"records/", "records/other", "records/events/", "records/events/../a",
                           "records/events/a/b", "records/../metrics.jsonl"})
    EXPECT_EQ(write("u", 0, "x", name), grpc::StatusCode::INVALID_ARGUMENT) << name;
  const auto files = this->files(address(), std::chrono::seconds(10));
  for (const std::string name : {"metrics.jsonl", "events/a"}) {
    const auto file = files->create(fmt::format("{}/{}", kRemoteRecords, name), Writers::kOne);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ((*file)->write(name), absl::OkStatus());
    ASSERT_EQ((*file)->commit(), absl::OkStatus());
    EXPECT_EQ(readStored(records / name, 100).value(), name);
  }
  const auto stored = files->open("task://records/metrics.jsonl");
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ((*stored)->size(), 13U);
  EXPECT_TRUE(files->list(kRemoteRecords)->empty());
}

TEST_F(FileServiceTest, StrangersAreRefused) {
  const RuntimeKeys others = deriveRuntimeKeys(std::string(64, 'b'));
  const auto channel = openSecureChannel(address(), others.control, kRuntimeServerName);
  const auto stranger = v1::CheckpointFiles::NewStub(channel);
  grpc::ClientContext context;
  v1::ListFilesReply reply;
  EXPECT_FALSE(stranger->ListFiles(&context, v1::ListFilesRequest(), &reply).ok());
}

TEST_F(FileServiceTest, ATaskThatIsAwayIsWaitedForAndGoesOnWithWhatItHas) {
  ASSERT_EQ(writeStored(dir_.path() / "a", "some text"), absl::OkStatus());
  const auto files = this->files(address(), std::chrono::seconds(60));
  const auto file = files->open("task://checkpoints/a");
  ASSERT_TRUE(file.ok()) << file.status();
  server_.reset();
  std::string text(9, ' ');
  std::thread later([this] { serve(); });
  EXPECT_EQ((*file)->read(0, std::as_writable_bytes(std::span(text))), absl::OkStatus());
  later.join();
  EXPECT_EQ(text, "some text");
  server_.reset();
  const auto gone = this->files(address(), std::chrono::milliseconds(50));
  const Status away = gone->open("task://checkpoints/a").status();
  EXPECT_TRUE(absl::IsUnavailable(away)) << away;
  EXPECT_THAT(std::string(away.message()), HasSubstr("task://checkpoints/a: "));
  const Status unknown =
      this->files("", std::chrono::milliseconds(50))->list(kRemoteFiles).status();
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("address is not known"));
}

// As ps-0 does between the server by which it waits for a model and the one it trains with.
TEST_F(FileServiceTest, ACallThatTheTaskHasNotLookedAtWhenItEndsIsMadeAgain) {
  ASSERT_EQ(writeStored(dir_.path() / "a", "some text"), absl::OkStatus());
  EndingFiles ending;
  server_.reset();
  serve(ending);
  std::thread next([&] {
    ending.asked.WaitForNotification();
    server_.reset();
    serve();
  });
  const auto files = this->files(address(), std::chrono::seconds(60));
  const auto file = files->open("task://checkpoints/a");
  next.join();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), 9U);
}

TEST_F(FileServiceTest, AReaderGoesOnAfterItsFileWasClosed) {
  ASSERT_EQ(writeStored(dir_.path() / "a", "some text"), absl::OkStatus());
  const auto files = this->files(address(), std::chrono::seconds(60));
  const auto file = files->open("task://checkpoints/a");
  ASSERT_TRUE(file.ok()) << file.status();
  clock_.advance(std::chrono::minutes(6));
  std::string text(9, ' ');
  EXPECT_EQ((*file)->read(0, std::as_writable_bytes(std::span(text))), absl::OkStatus());
  EXPECT_EQ(text, "some text");
  ASSERT_EQ(writeStored(dir_.path() / "a", "another"), absl::OkStatus());
  clock_.advance(std::chrono::minutes(6));
  EXPECT_TRUE(absl::IsDataLoss((*file)->read(0, std::as_writable_bytes(std::span(text)))));
}

// Files of one kind have one size.
TEST_F(FileServiceTest, AReaderKeepsItsFileWhenTheTaskBeginsAgain) {
  ASSERT_EQ(writeStored(dir_.path() / "a", "some text"), absl::OkStatus());
  ASSERT_EQ(writeStored(dir_.path() / "b", "moretexts"), absl::OkStatus());
  const auto files = this->files(address(), std::chrono::seconds(60));
  const auto first = files->open("task://checkpoints/a");
  ASSERT_TRUE(first.ok()) << first.status();
  beginAgain();
  const auto second = files->open("task://checkpoints/b");
  ASSERT_TRUE(second.ok()) << second.status();
  std::string text(9, ' ');
  EXPECT_EQ((*first)->read(0, std::as_writable_bytes(std::span(text))), absl::OkStatus());
  EXPECT_EQ(text, "some text");
}

}  // namespace
}  // namespace trainyard::runtime
