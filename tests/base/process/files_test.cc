#include "base/process/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process/child_process.h"
#include "base/process/poll.h"
#include "base/process/scope_undo.h"
#include "base/process/unique_fd.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string textOf(const Status& status) {
  return std::string(status.message());
}

TEST(WriteFileAtomically, ReplacesContentAndSetsMode) {
  const TempDir dir;
  const fs::path path = dir.path() / "state.json";
  ASSERT_TRUE(writeFileAtomically(path, "old and longer", 0644).ok());
  ASSERT_TRUE(writeFileAtomically(path, "new", 0600).ok());
  EXPECT_EQ(readFile(path, 100).value(), "new");
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // No temporary file stays behind.
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

TEST(WriteFileAtomically, AReaderNeverSeesAPart) {
  const TempDir dir;
  const fs::path path = dir.path() / "state";
  const std::string a(100'000, 'a');
  const std::string b(50'000, 'b');
  ASSERT_TRUE(writeFileAtomically(path, a).ok());
  const int open_before = ::open(path.c_str(), O_RDONLY);
  ASSERT_TRUE(writeFileAtomically(path, b).ok());
  std::string seen(a.size() + 1, '\0');
  const ssize_t n = ::read(open_before, seen.data(), seen.size());
  ::close(open_before);
  EXPECT_EQ(n, static_cast<ssize_t>(a.size()));  // the old file, whole
  EXPECT_EQ(readFile(path, 1'000'000).value(), b);
}

TEST(WriteFileAtomically, NamesTheFolderThatIsMissing) {
  const TempDir dir;
  const Status status = writeFileAtomically(dir.path() / "no" / "file", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(textOf(status), HasSubstr((dir.path() / "no").native()));
}

TEST(ReplaceFile, ReplacesContentAndSetsMode) {
  const TempDir dir;
  const fs::path path = dir.path() / "state.json";
  ASSERT_TRUE(writeFileAtomically(path, "old and longer", 0644).ok());
  ASSERT_TRUE(replaceFile(path, "new", 0600).ok());
  EXPECT_EQ(readFile(path, 100).value(), "new");
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
  EXPECT_FALSE(replaceFile(dir.path() / "no" / "file", "x").ok());
}

// Such as a process of our number in another container that shares the folder.
TEST(WriteFileAtomically, LeavesAloneWhatAnotherIsWriting) {
  const TempDir dir;
  constexpr int kFiles = 1000;
  for (int i = 0; i < kFiles; ++i) {
    const UniqueFd made(::open((dir.path() / fmt::format(".state.{}.{}", ::getpid(), i)).c_str(),
                               O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(made.valid());
  }
  ASSERT_TRUE(writeFileAtomically(dir.path() / "state", "new").ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()),
            kFiles + 1);
}

TEST(ReadFile, TellsMissingFromTooLarge) {
  const TempDir dir;
  const fs::path path = dir.path() / "f";
  EXPECT_EQ(readFile(path, 10).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(writeFileAtomically(path, "0123456789").ok());
  EXPECT_EQ(readFile(path, 10).value(), "0123456789");
  const Status large = readFile(path, 9).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(textOf(large), HasSubstr(path.native()));
}

TEST(ReadFile, WaitsForNoPipe) {
  const TempDir dir;
  const fs::path path = dir.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const fs::path& wrong : {path, dir.path()}) {
    const Status status = readFile(wrong, 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(textOf(status), HasSubstr(wrong.native()));
  }
}

TEST(SyncFolder, NamesTheFolder) {
  const TempDir dir;
  EXPECT_TRUE(syncFolder(dir.path()).ok());
  EXPECT_TRUE(syncFolder("").ok()) << "the current one";
  const Status status = syncFolder(dir.path() / "no");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(textOf(status), HasSubstr((dir.path() / "no").native()));
}

TEST(MakeDirectories, AppliesTheModeToTheLast) {
  const TempDir dir;
  const fs::path path = dir.path() / "a" / "b";
  ASSERT_TRUE(makeDirectories(path, 0700).ok());
  ASSERT_TRUE(makeDirectories(path, 0700).ok());
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_TRUE(writeFileAtomically(dir.path() / "file", "x").ok());
  const Status status = makeDirectories(dir.path() / "file", 0700);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(textOf(status), HasSubstr("file: Not a directory"));
}

TEST(MakeSharedDirectories, LetsTheGroupWriteWhereTheFolderAboveHandsItOn) {
  const TempDir dir;
  const auto modeOf = [](const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  };
  ASSERT_TRUE(makeSharedDirectories(dir.path() / "own").ok());
  EXPECT_EQ(modeOf(dir.path() / "own"), 0755u);
  const fs::path volume = dir.path() / "volume";
  ASSERT_TRUE(makeDirectories(volume).ok());
  ASSERT_EQ(::chmod(volume.c_str(), 02775), 0);
  ASSERT_TRUE(makeSharedDirectories(volume / "checkpoints").ok());
  EXPECT_EQ(modeOf(volume / "checkpoints"), 02775u);
  // One that is there stays as somebody has made it.
  ASSERT_EQ(::chmod((volume / "checkpoints").c_str(), 02755), 0);
  ASSERT_TRUE(makeSharedDirectories(volume / "checkpoints").ok());
  EXPECT_EQ(modeOf(volume / "checkpoints"), 02755u);
}

TEST(FileLock, NamesTheHolderAndIsFreeAgainAfterwards) {
  const TempDir dir;
  const fs::path path = dir.path() / "lock";
  {
    const StatusOr<FileLock> first = FileLock::acquire(path);
    ASSERT_TRUE(first.ok());
    const Status second = FileLock::acquire(path).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(textOf(second), HasSubstr(fmt::format("process {}", ::getpid())));
    EXPECT_THAT(textOf(second), HasSubstr(path.native()));
  }
  EXPECT_TRUE(FileLock::acquire(path).ok());
}

TEST(FileLock, ChildrenDoNotKeepIt) {
  const TempDir dir;
  const fs::path path = dir.path() / "lock";
  std::optional<FileLock> lock = FileLock::acquire(path).value();
  StatusOr<ChildProcess> child = ChildProcess::spawn({.argv = {"/bin/sleep", "60"}});
  ASSERT_TRUE(child.ok());
  lock.reset();
  // The child's descriptors close with its exec, which may be a moment after spawn() returns.
  const TimePoint limit = systemClock().now() + std::chrono::seconds(30);
  while (!FileLock::acquire(path).ok() && systemClock().now() < limit) {
    pollUntil({}, systemClock().now() + std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(FileLock::acquire(path).ok());
}

TEST(FileLock, ItsHolderIsSeenWithoutTouchingIt) {
  const TempDir dir;
  const fs::path path = dir.path() / "lock";
  EXPECT_EQ(FileLock::holder(path).value(), std::nullopt) << "no such file";
  {
    const FileLock lock = FileLock::acquire(path).value();
    EXPECT_EQ(FileLock::holder(path).value(), ::getpid());
    EXPECT_EQ(FileLock::holder(path).value(), ::getpid());
    EXPECT_FALSE(FileLock::acquireBy(path, systemClock(), systemClock().now()).ok());
  }
  EXPECT_EQ(FileLock::holder(path).value(), std::nullopt) << "the number stays, the lock does not";
  EXPECT_TRUE(FileLock::acquireBy(path, systemClock(), systemClock().now()).ok());
}

// The child holds the same open file, so the lock is never free in between.
TEST(FileLock, IsHandedOverToAChild) {
  const TempDir dir;
  const fs::path path = dir.path() / "lock";
  std::optional<FileLock> lock = FileLock::acquire(path).value();
  StatusOr<ChildProcess> child =
      ChildProcess::spawn({.argv = {"/bin/sleep", "60"}, .keep_fds = {lock->fd()}});
  ASSERT_TRUE(child.ok());
  lock.reset();
  EXPECT_TRUE(absl::IsFailedPrecondition(FileLock::acquire(path).status()));
  ASSERT_TRUE(child->stop(std::chrono::seconds(5)).ok());
  EXPECT_TRUE(FileLock::acquire(path).ok());
}

TEST(FileLock, OnlyALockOfThatFileIsAdopted) {
  const TempDir dir;
  const fs::path path = dir.path() / "lock";
  ASSERT_TRUE(writeFileAtomically(path, "4711\n").ok());
  const UniqueFd inherited(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  {
    const FileLock other = FileLock::acquire(path).value();
    EXPECT_FALSE(FileLock::adopt(inherited.get(), path).ok()) << "somebody else's";
    EXPECT_FALSE(FileLock::adopt(inherited.get(), dir.path() / "another").ok());
  }
  const int copy = ::fcntl(inherited.get(), F_DUPFD, 3);
  const FileLock adopted = FileLock::adopt(copy, path).value();
  EXPECT_EQ(FileLock::holder(path).value(), ::getpid());
  EXPECT_EQ(readFile(path, 64).value(), fmt::format("{}\n", ::getpid()));
  EXPECT_EQ(::fcntl(copy, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(FileLock, AFileThatItsOwnerRemovesIsMadeAnew) {
  const TempDir dir;
  const fs::path path = dir.path() / "lock";
  const FileLock removed = FileLock::acquire(path).value();
  fs::remove(path);
  EXPECT_TRUE(FileLock::acquire(path).ok());
}

TEST(ScopeUndo, RunsInReverseOnceUnlessDismissed) {
  std::string trace;
  {
    ScopeUndo undo;
    undo.push([&] { trace += 'a'; });
    undo.push([&] { trace += 'b'; });
    undo.run();
    undo.push([&] { trace += 'c'; });
  }
  EXPECT_EQ(trace, "bac");
  {
    ScopeUndo undo;
    undo.push([&] { trace += 'd'; });
    undo.dismiss();
  }
  EXPECT_EQ(trace, "bac");
}

}  // namespace
}  // namespace trainyard
