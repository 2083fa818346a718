#include "runtime/storage/s3/object_reader.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <future>

#include "base/process/files.h"
#include "base/process/new_file.h"
#include "fmt/format.h"
#include "runtime/storage/local_storage.h"
#include "runtime/storage/s3/object_writer.h"

namespace trainyard::runtime::s3 {
namespace {

constexpr std::size_t kHeadBytes = std::size_t{256} << 10;
constexpr std::size_t kPartsAtOnce = 4;

// A file that is gone when it is closed.
StatusOr<UniqueFd> makeCopy(const std::string& folder) {
  TY_ASSIGN_OR_RETURN(NewFile file, createBeside(std::filesystem::path(folder) / "object"));
  std::error_code ignored;
  std::filesystem::remove(file.path, ignored);
  return std::move(file.fd);
}

}  // namespace

StatusOr<std::shared_ptr<const ReadableFile>> ObjectReader::open(std::shared_ptr<Client> client,
                                                                 const std::string& path) {
  TY_ASSIGN_OR_RETURN(ObjectName name, parseObjectName(path));
  TY_ASSIGN_OR_RETURN(ObjectPart head, client->get(name, 0, kHeadBytes));
  return std::make_shared<const ObjectReader>(std::move(client), path, std::move(name),
                                              std::move(head));
}

Status ObjectReader::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset + out.size() > size())
    return absl::DataLossError(fmt::format("{}: ends at byte {}", path(), size()));
  if (offset + out.size() <= head_.bytes.size()) {
    if (!out.empty()) std::memcpy(out.data(), head_.bytes.data() + offset, out.size());
    return absl::OkStatus();
  }
  if (copied_) return readFully(copy_.get(), path(), offset, out);
  while (!out.empty()) {
    const std::size_t length = std::min(out.size(), kPartBytes);
    TY_ASSIGN_OR_RETURN(const ObjectPart part, client_->get(name_, offset, length, head_.tag));
    if (part.bytes.size() != length)
      return absl::DataLossError(fmt::format("{}: ends at byte {}", path(), part.size));
    std::memcpy(out.data(), part.bytes.data(), length);
    out = out.subspan(length);
    offset += length;
  }
  return absl::OkStatus();
}

// In order, with the next parts on their way.
Status ObjectReader::fetch(const std::function<Status(const std::string& bytes)>& take) const {
  std::deque<std::future<StatusOr<ObjectPart>>> coming;
  std::uint64_t asked = 0;
  for (std::uint64_t at = 0; at < size();) {
    while (asked < size() && coming.size() < kPartsAtOnce) {
      const std::size_t length = std::min<std::uint64_t>(kPartBytes, size() - asked);
      coming.push_back(std::async(std::launch::async, [this, asked, length] {
        return client_->get(name_, asked, length, head_.tag);
      }));
      asked += length;
    }
    TY_ASSIGN_OR_RETURN(const ObjectPart part, coming.front().get());
    coming.pop_front();
    const std::size_t expected = std::min<std::uint64_t>(kPartBytes, size() - at);
    if (part.bytes.size() != expected)
      return absl::DataLossError(fmt::format("{}: ends at byte {}", path(), part.size));
    TY_RETURN_IF_ERROR(take(part.bytes));
    at += part.bytes.size();
  }
  return absl::OkStatus();
}

Status ObjectReader::readThrough(
    const std::function<void(std::span<const std::byte>)>& sink) const {
  const std::lock_guard lock(mutex_);
  if (head_.bytes.size() == size()) {
    sink(std::as_bytes(std::span(head_.bytes.data(), head_.bytes.size())));
    return absl::OkStatus();
  }
  TY_ASSIGN_OR_RETURN(UniqueFd copy, makeCopy(client_->config().scratch));
  TY_RETURN_IF_ERROR(fetch([&](const std::string& bytes) {
    sink(std::as_bytes(std::span(bytes.data(), bytes.size())));
    return annotate(writeAll(copy.get(), bytes, client_->config().scratch),
                    fmt::format("a copy of {}", path()));
  }));
  if (!copied_) {
    copy_ = std::move(copy);
    copied_ = true;
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::s3
