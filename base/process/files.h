// Small files that other processes read while we write them: whole or not at all.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/process/unique_fd.h"

namespace trainyard {

// Replaces `path` by a file of exactly `bytes`: temporary file in the same folder, fsync, rename,
// fsync of the folder. A reader sees the old content or the new, also after a crash. The folder
// must exist. Blocks for the disk. Errors name the path; the former file is then still in place.
Status writeFileAtomically(const std::filesystem::path& path, std::string_view bytes,
                           mode_t mode = 0644);

// The same without waiting for the disk, for what only processes read that live now: readers see
// the old content or the new, but after a crash of the machine perhaps an empty file.
Status replaceFile(const std::filesystem::path& path, std::string_view bytes, mode_t mode = 0644);

// The whole file. NOT_FOUND when there is none, INVALID_ARGUMENT when it holds more than
// `max_bytes` or is no regular file (a pipe is not waited for); other errors name the path too.
StatusOr<std::string> readFile(const std::filesystem::path& path, std::size_t max_bytes);

// All of `bytes` to the open file `fd`. Errors name `path`; part of it may then be written.
Status writeAll(int fd, std::string_view bytes, const std::filesystem::path& path);

// Makes creations, renames and removals in a folder durable (fsync); "" is the current one. Blocks
// for the disk. Errors name it. OK where the file system has no fsync for folders.
Status syncFolder(const std::filesystem::path& folder);

// The folder and those above it; `mode` applies to the last one where it is created. OK when it
// exists already as a folder.
Status makeDirectories(const std::filesystem::path& path, mode_t mode = 0755);

// The same, for a folder in which others write too. Where the folder above hands on its group
// (setgid, as volumes of pods with an fsGroup do) and this creates it, the group may write: tasks
// of one job may have different users, whose images say so.
Status makeSharedDirectories(const std::filesystem::path& path);

// An exclusive lock (of the open file, F_OFD_SETLK) on a file that holds the owner's pid. Released
// by the destructor or when the process ends, however it ends; the file stays. Movable.
//
// Child processes do not inherit it, unless it is handed over: a child that was started with fd()
// among its SpawnOptions::keep_fds adopts it, and it stays locked when the parent lets go of it.
class FileLock {
 public:
  // Never waits. FAILED_PRECONDITION naming the pid when another process, or this one, holds it.
  static StatusOr<FileLock> acquire(const std::filesystem::path& path);
  // Waits for it until `deadline`, then fails as above.
  static StatusOr<FileLock> acquireBy(const std::filesystem::path& path, const Clock& clock,
                                      TimePoint deadline);
  // Takes over `fd`, a lock of the parent process on `path`, and writes this process's pid into the
  // file. Fails where `fd` is not open on that file or does not hold its lock; `fd` is then left
  // alone.
  static StatusOr<FileLock> adopt(int fd, const std::filesystem::path& path);
  // Who holds the lock, seen without touching it: nothing where it is free or there is no such
  // file, 0 for a holder that has not yet written its pid.
  static StatusOr<std::optional<pid_t>> holder(const std::filesystem::path& path);

  int fd() const { return fd_.get(); }

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard
