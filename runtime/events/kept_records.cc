#include "runtime/events/kept_records.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "base/process/new_file.h"
#include "base/process/retry_interrupted.h"
#include "fmt/format.h"
#include "runtime/events/append_file.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// 0 where it is not there.
std::uint64_t sizeOf(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

// Its first `size` bytes, while others may append to it.
Status append(const fs::path& path, std::uint64_t size, WritableFile& to) {
  if (size == 0) return absl::OkStatus();
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errnoStatus(errno, path.string());
  std::vector<std::byte> piece(std::min<std::uint64_t>(kPieceBytes, size));
  for (std::uint64_t at = 0; at < size;) {
    const std::size_t wanted = std::min<std::uint64_t>(piece.size(), size - at);
    const ssize_t got = retryInterrupted([&] { return ::read(file.get(), piece.data(), wanted); });
    if (got < 0) return errnoStatus(errno, path.string());
    if (got == 0) return absl::AbortedError(fmt::format("{} became shorter", path.string()));
    TY_RETURN_IF_ERROR(to.write(std::span(piece.data(), static_cast<std::size_t>(got))));
    at += static_cast<std::uint64_t>(got);
  }
  return absl::OkStatus();
}

Status writeInto(const NewFile& file, const ReadableFile& from) {
  Status written;
  TY_RETURN_IF_ERROR(from.readThrough([&](std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (written.ok()) written = writeAll(file.fd.get(), text, file.path);
  }));
  TY_RETURN_IF_ERROR(written);
  return AppendFile::openLines(file.path).status();  // cuts off a line that is not whole
}

}  // namespace

KeptRecords::KeptRecords(Options options)
    : options_(std::move(options)),
      lines_(options_.job_dir / "metrics.jsonl"),
      former_(options_.job_dir / "metrics.former.jsonl"),
      thread_([this] { run(); }) {}

KeptRecords::~KeptRecords() {
  stop();
}

void KeptRecords::stop() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void KeptRecords::finish() {
  stop();
  note(copyAll());
}

void KeptRecords::run() {
  Duration every = options_.first;
  Duration wait = every;
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, wait, [this] { return stops_; })) {
    lock.unlock();
    note(copyAll());
    const double seconds = static_cast<double>(sent_) / options_.bytes_per_second;
    every = std::min(2 * every, options_.every);
    wait = std::max(every, fromSeconds(seconds));
    lock.lock();
  }
}

void KeptRecords::note(const Status& status) {
  if (!status.ok() && !complained_)
    TY_WARN("records are not copied to {}, training goes on: {}", options_.place,
            fromAbsl(status.message()));
  complained_ = !status.ok();
}

Status KeptRecords::copyAll() {
  sent_ = 0;
  if (sizeOf(lines_) == 0) return absl::OkStatus();
  TY_RETURN_IF_ERROR(fetchFormer());
  TY_RETURN_IF_ERROR(copy("metrics.jsonl", {former_, lines_}));
  std::error_code error;
  fs::directory_iterator file(options_.job_dir / "events", error);
  for (; !error && file != fs::directory_iterator(); file.increment(error)) {
    TY_RETURN_IF_ERROR(
        copy(fmt::format("events/{}", file->path().filename().string()), {file->path()}));
  }
  return absl::OkStatus();
}

Status KeptRecords::fetchFormer() {
  if (fs::exists(former_)) return absl::OkStatus();
  const auto stored = openStored(options_.place + "/metrics.jsonl");
  if (absl::IsNotFound(stored.status())) return replaceFile(former_, "");
  TY_RETURN_IF_ERROR(stored.status());
  TY_ASSIGN_OR_RETURN(const NewFile file, createBeside(former_));
  Status status = writeInto(file, **stored);
  if (status.ok() && ::rename(file.path.c_str(), former_.c_str()) != 0)
    status = errnoStatus(errno, former_.string());
  if (!status.ok()) ::unlink(file.path.c_str());
  return status;
}

Status KeptRecords::copy(const std::string& name, const std::vector<fs::path>& files) {
  std::vector<std::uint64_t> sizes;
  std::uint64_t all = 0;
  for (const fs::path& file : files) all += sizes.emplace_back(sizeOf(file));
  if (copied_.contains(name) && copied_[name] == all) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const auto copy, createStored(fmt::format("{}/{}", options_.place, name)));
  for (std::size_t i = 0; i < files.size(); ++i)
    TY_RETURN_IF_ERROR(append(files[i], sizes[i], *copy));
  TY_RETURN_IF_ERROR(copy->commit());
  copied_[name] = all;
  sent_ += all;
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
