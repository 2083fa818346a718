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
class ObjectReader::PartsAhead : public ByteStream {
 public:
  explicit PartsAhead(const ObjectReader& object) : object_(object) {}

  // The next one; empty at the end.
  StatusOr<std::string> part() {
    askAhead();
    if (coming_.empty()) return std::string();
    TY_ASSIGN_OR_RETURN(ObjectPart part, coming_.front().get());
    coming_.pop_front();
    if (part.bytes.size() != lengthAt(at_))
      return absl::DataLossError(fmt::format("{}: ends at byte {}", object_.path(), part.size));
    at_ += part.bytes.size();
    return std::move(part.bytes);
  }

  StatusOr<std::size_t> next(std::span<std::byte> out) override {
    if (given_ == held_.size()) {
      TY_ASSIGN_OR_RETURN(held_, part());
      given_ = 0;
    }
    const std::size_t bytes = std::min(out.size(), held_.size() - given_);
    if (bytes > 0) std::memcpy(out.data(), held_.data() + given_, bytes);
    given_ += bytes;
    return bytes;
  }

 private:
  std::size_t lengthAt(std::uint64_t offset) const {
    return std::min<std::uint64_t>(kPartBytes, object_.size() - offset);
  }
  void askAhead() {
    while (asked_ < object_.size() && coming_.size() < kPartsAtOnce) {
      coming_.push_back(
          std::async(std::launch::async, [&of = object_, at = asked_, length = lengthAt(asked_)] {
            return of.client_->get(of.name_, at, length, of.head_.tag);
          }));
      asked_ += lengthAt(asked_);
    }
  }

  const ObjectReader& object_;
  std::deque<std::future<StatusOr<ObjectPart>>> coming_;
  std::uint64_t asked_ = 0;
  std::uint64_t at_ = 0;  // where the first of `coming_` begins
  std::string held_;      // the part that next() hands out
  std::size_t given_ = 0;
};

std::unique_ptr<ByteStream> ObjectReader::stream() const {
  if (head_.bytes.size() == size()) return ReadableFile::stream();
  return std::make_unique<PartsAhead>(*this);
}

Status ObjectReader::readThrough(
    const std::function<void(std::span<const std::byte>)>& sink) const {
  const std::lock_guard lock(mutex_);
  if (head_.bytes.size() == size()) {
    sink(std::as_bytes(std::span(head_.bytes.data(), head_.bytes.size())));
    return absl::OkStatus();
  }
  TY_ASSIGN_OR_RETURN(UniqueFd copy, makeCopy(client_->config().scratch));
  PartsAhead parts(*this);
  for (;;) {
    TY_ASSIGN_OR_RETURN(const std::string bytes, parts.part());
    if (bytes.empty()) break;
    sink(std::as_bytes(std::span(bytes.data(), bytes.size())));
    TY_RETURN_IF_ERROR(annotate(writeAll(copy.get(), bytes, client_->config().scratch),
                                fmt::format("a copy of {}", path())));
  }
  if (!copied_) {
    copy_ = std::move(copy);
    copied_ = true;
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::s3
