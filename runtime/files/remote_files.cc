#include "runtime/files/remote_files.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/sleep.h"
#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/status_map.h"
#include "base/security/random.h"
#include "base/security/sha256.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

constexpr std::size_t kPartBytes = std::size_t{2} << 20;

StatusOr<std::string> nameIn(const std::string& path) {
  const std::string prefix = std::string(kRemoteFiles) + "/";
  if (path.starts_with(prefix)) return path.substr(prefix.size());
  if (path.starts_with(std::string(kTaskScheme) + std::string(kRecords)))
    return path.substr(kTaskScheme.size());
  return absl::InvalidArgumentError(fmt::format("{}: expected {}/NAME", path, kRemoteFiles));
}

// The coordinator is not there yet, is busy, or ends: calls that its server has not answered then
// are CANCELLED.
bool mayReachLater(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         status.error_code() == grpc::StatusCode::CANCELLED;
}

}  // namespace

class RemoteFile : public ReadableFile {
 public:
  RemoteFile(RemoteFiles& files, std::string path, v1::ReadFileRequest request, std::uint64_t size)
      : ReadableFile(std::move(path), size), files_(files), request_(std::move(request)) {}

  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      TY_ASSIGN_OR_RETURN(const std::string bytes, part(offset, std::min(out.size(), kPartBytes)));
      std::memcpy(out.data(), bytes.data(), bytes.size());
      offset += bytes.size();
      out = out.subspan(bytes.size());
    }
    return absl::OkStatus();
  }

  Status readThrough(const std::function<void(std::span<const std::byte>)>& sink) const override {
    for (std::uint64_t at = 0; at < size();) {
      TY_ASSIGN_OR_RETURN(const std::string bytes,
                          part(at, std::min<std::uint64_t>(size() - at, kPartBytes)));
      sink(std::as_bytes(std::span(bytes.data(), bytes.size())));
      at += bytes.size();
    }
    return absl::OkStatus();
  }

 private:
  StatusOr<std::string> part(std::uint64_t offset, std::size_t length) const {
    v1::ReadFileRequest request;
    {
      const std::lock_guard lock(mutex_);
      request = request_;
    }
    request.set_offset(offset);
    request.set_length(static_cast<std::uint32_t>(length));
    v1::ReadFileReply reply;
    TY_RETURN_IF_ERROR(files_.call(path(), [&](auto& stub, grpc::ClientContext* context) {
      return stub.ReadFile(context, request, &reply);
    }));
    if (reply.size() != size() || reply.bytes().size() != length)
      return absl::DataLossError(fmt::format("{}: ends at byte {}", path(), reply.size()));
    const std::lock_guard lock(mutex_);
    request_.set_handle(reply.handle());
    return std::move(*reply.mutable_bytes());
  }

  RemoteFiles& files_;
  mutable std::mutex mutex_;
  mutable v1::ReadFileRequest request_;  // with the name and the newest handle
};

class RemoteWriter : public WritableFile {
 public:
  RemoteWriter(RemoteFiles& files, std::string path, const std::string& name, Writers writers)
      : files_(files), path_(std::move(path)) {
    part_.set_upload(randomHex(16));
    part_.set_name(name);
    part_.set_several(writers == Writers::kSeveral);
  }
  ~RemoteWriter() override {
    if (!sent_ || ended_) return;
    v1::EndFileRequest request;
    request.set_upload(part_.upload());
    static_cast<void>(end(request, Duration(0)));  // else it goes later
  }
  RemoteWriter(const RemoteWriter&) = delete;
  RemoteWriter& operator=(const RemoteWriter&) = delete;

  using WritableFile::write;
  Status write(std::span<const std::byte> bytes) override {
    hash_.update(bytes);
    size_ += bytes.size();
    while (!bytes.empty()) {
      std::string& part = *part_.mutable_bytes();
      const auto more = bytes.first(std::min(bytes.size(), kPartBytes - part.size()));
      part.append(reinterpret_cast<const char*>(more.data()), more.size());
      bytes = bytes.subspan(more.size());
      if (part.size() == kPartBytes) TY_RETURN_IF_ERROR(send());
    }
    return absl::OkStatus();
  }
  std::uint64_t size() const override { return size_; }
  std::string sha256() const override { return hash_.hexDigest(); }
  Status sync() override { return flush(); }
  Status commit() override { return finish(/*exclusively=*/false); }
  Status commitExclusively() override { return finish(/*exclusively=*/true); }

 private:
  Status send() {
    v1::WriteFileReply reply;
    sent_ = true;
    TY_RETURN_IF_ERROR(files_.call(path_, [&](auto& stub, grpc::ClientContext* context) {
      return stub.WriteFile(context, part_, &reply);
    }));
    part_.set_offset(part_.offset() + part_.bytes().size());
    part_.mutable_bytes()->clear();
    return absl::OkStatus();
  }
  Status flush() { return sent_ && part_.bytes().empty() ? absl::OkStatus() : send(); }
  Status end(const v1::EndFileRequest& request, Duration patience) {
    v1::EndFileReply reply;
    const auto call = [&](auto& stub, grpc::ClientContext* context) {
      return stub.EndFile(context, request, &reply);
    };
    return files_.call(path_, call, patience);
  }
  Status finish(bool exclusively) {
    TY_RETURN_IF_ERROR(flush());
    v1::EndFileRequest request;
    request.set_upload(part_.upload());
    request.set_commit(true);
    request.set_exclusively(exclusively);
    request.set_size(size_);
    request.set_sha256(hash_.hexDigest());
    ended_ = true;
    return end(request, files_.options_.patience);
  }

  RemoteFiles& files_;
  const std::string path_;
  Sha256 hash_;
  std::uint64_t size_ = 0;
  v1::WriteFileRequest part_;  // what has not been sent
  bool sent_ = false;          // anything
  bool ended_ = false;
};

RemoteFiles::RemoteFiles(Options options, const Clock& clock)
    : options_(std::move(options)), clock_(clock) {}

void RemoteFiles::setAddress(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (address == address_) return;
  address_ = address;
  stub_.reset();
}

std::shared_ptr<RemoteFiles::Stub> RemoteFiles::stub() {
  const std::lock_guard lock(mutex_);
  if (stub_ == nullptr && !address_.empty()) {
    stub_ = v1::CheckpointFiles::NewStub(
        openSecureChannel(address_, options_.identity, kRuntimeServerName));
  }
  return stub_;
}

Status RemoteFiles::call(const std::string& path, const Call& call) {
  return this->call(path, call, options_.patience);
}

Status RemoteFiles::call(const std::string& path, const Call& call, Duration patience) {
  const TimePoint end = clock_.now() + patience;
  for (;;) {
    grpc::Status status(grpc::StatusCode::UNAVAILABLE, "the coordinator's address is not known");
    if (const std::shared_ptr<Stub> to = stub()) {
      grpc::ClientContext context;
      setDeadline(context, options_.timeout);
      status = call(*to, &context);
    }
    if (status.ok()) return absl::OkStatus();
    if (!mayReachLater(status) || clock_.now() + options_.pause > end)
      return fromGrpc(status, path);
    sleepUntil(clock_.now() + options_.pause);
  }
}

StatusOr<std::vector<StoredFile>> RemoteFiles::list(const std::string& folder) {
  if (folder != kRemoteFiles) return std::vector<StoredFile>();
  v1::ListFilesReply reply;
  TY_RETURN_IF_ERROR(call(folder, [&](Stub& stub, grpc::ClientContext* context) {
    return stub.ListFiles(context, v1::ListFilesRequest(), &reply);
  }));
  std::vector<StoredFile> files;
  for (const v1::ListFilesReply::File& file : reply.files())
    files.push_back({file.name(), file.size(), file.modified_ns()});
  return files;
}

StatusOr<std::shared_ptr<const ReadableFile>> RemoteFiles::open(const std::string& path) {
  v1::ReadFileRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), nameIn(path));
  v1::ReadFileReply reply;
  TY_RETURN_IF_ERROR(call(path, [&](Stub& stub, grpc::ClientContext* context) {
    return stub.ReadFile(context, request, &reply);
  }));
  request.set_handle(reply.handle());
  return std::make_shared<const RemoteFile>(*this, path, std::move(request), reply.size());
}

StatusOr<std::unique_ptr<WritableFile>> RemoteFiles::create(const std::string& path,
                                                            Writers writers) {
  TY_ASSIGN_OR_RETURN(const std::string name, nameIn(path));
  return std::make_unique<RemoteWriter>(*this, path, name, writers);
}

Status RemoteFiles::remove(const std::string& path) {
  v1::RemoveFileRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), nameIn(path));
  v1::RemoveFileReply reply;
  return call(path, [&](Stub& stub, grpc::ClientContext* context) {
    return stub.RemoveFile(context, request, &reply);
  });
}

Status RemoteFiles::makeFolder(const std::string& folder) {
  if (folder == kRemoteFiles) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}: there is only {}", folder, kRemoteFiles));
}

Status RemoteFiles::settle(const std::string& /*folder*/) {
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
