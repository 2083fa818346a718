#include "runtime/files/file_service.h"

#include <algorithm>

#include "base/rpc/secure_channel.h"
#include "base/rpc/status_map.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kIdle = std::chrono::minutes(5);
constexpr std::size_t kRemembered = 64;
constexpr std::uint32_t kReadBytesMax = 4 << 20;
constexpr std::string_view kEvents = "events/";

std::span<const std::byte> bytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Within a folder.
bool isName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' &&
         name.find('/') == std::string_view::npos;
}

}  // namespace

FileService::FileService(std::string folder, const Clock& clock, std::string records)
    : folder_(std::move(folder)), records_(std::move(records)), clock_(clock) {}

template <typename Work>
grpc::ServerUnaryReactor* FileService::answer(grpc::CallbackServerContext* context, Work work) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const grpc::Status known = checkPeer(*context);
  if (!known.ok()) {
    reactor->Finish(known);
    return reactor;
  }
  thread_.add([this, reactor, work = std::move(work)] {
    forgetIdle();
    reactor->Finish(toGrpc(work()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* FileService::ListFiles(grpc::CallbackServerContext* context,
                                                 const v1::ListFilesRequest*,
                                                 v1::ListFilesReply* reply) {
  return answer(context, [this, reply] { return list(*reply); });
}

grpc::ServerUnaryReactor* FileService::ReadFile(grpc::CallbackServerContext* context,
                                                const v1::ReadFileRequest* request,
                                                v1::ReadFileReply* reply) {
  return answer(context, [this, request, reply] { return read(*request, *reply); });
}

grpc::ServerUnaryReactor* FileService::WriteFile(grpc::CallbackServerContext* context,
                                                 const v1::WriteFileRequest* request,
                                                 v1::WriteFileReply*) {
  return answer(context, [this, request] { return write(*request); });
}

grpc::ServerUnaryReactor* FileService::EndFile(grpc::CallbackServerContext* context,
                                               const v1::EndFileRequest* request,
                                               v1::EndFileReply*) {
  return answer(context, [this, request] { return end(*request); });
}

grpc::ServerUnaryReactor* FileService::RemoveFile(grpc::CallbackServerContext* context,
                                                  const v1::RemoveFileRequest* request,
                                                  v1::RemoveFileReply*) {
  return answer(context, [this, request]() -> Status {
    TY_ASSIGN_OR_RETURN(const std::string path, pathOf(request->name()));
    return removeStored(path);
  });
}

// Nobody leaves the folders.
StatusOr<std::string> FileService::pathOf(const std::string& name) const {
  if (!records_.empty() && name.starts_with(kRecords)) {
    const std::string record = name.substr(kRecords.size());
    const bool event = record.starts_with(kEvents) && isName(record.substr(kEvents.size()));
    if (event || record == "metrics.jsonl") return fmt::format("{}/{}", records_, record);
  }
  if (isName(name)) return fmt::format("{}/{}", folder_, name);
  return absl::InvalidArgumentError(fmt::format("\"{}\" is no name of a file", name));
}

Status FileService::list(v1::ListFilesReply& reply) {
  TY_ASSIGN_OR_RETURN(const std::vector<StoredFile> files, listStored(folder_));
  for (const StoredFile& file : files) {
    v1::ListFilesReply::File* const entry = reply.add_files();
    entry->set_name(file.name);
    entry->set_size(file.size);
    entry->set_modified_ns(file.modified_ns);
  }
  return absl::OkStatus();
}

StatusOr<std::uint64_t> FileService::open(const v1::ReadFileRequest& request) {
  TY_ASSIGN_OR_RETURN(const std::string path, pathOf(request.name()));
  // A former process may have given the same number to another file.
  const auto known = open_.find(request.handle());
  if (known != open_.end() && known->second.file->path() == path) return request.handle();
  TY_ASSIGN_OR_RETURN(auto file, openStored(path));
  open_[++handles_].file = std::move(file);
  return handles_;
}

Status FileService::read(const v1::ReadFileRequest& request, v1::ReadFileReply& reply) {
  TY_ASSIGN_OR_RETURN(const std::uint64_t handle, open(request));
  Open& opened = open_.at(handle);
  opened.used = clock_.now();
  reply.set_handle(handle);
  reply.set_size(opened.file->size());
  const std::uint64_t offset = std::min(request.offset(), opened.file->size());
  std::string* const bytes = reply.mutable_bytes();
  bytes->resize(std::min<std::uint64_t>(std::min(request.length(), kReadBytesMax),
                                        opened.file->size() - offset));
  return opened.file->read(offset, std::as_writable_bytes(std::span(bytes->data(), bytes->size())));
}

Status FileService::write(const v1::WriteFileRequest& request) {
  auto upload = uploads_.find(request.upload());
  if (upload == uploads_.end() && request.offset() == 0) {
    TY_ASSIGN_OR_RETURN(const std::string path, pathOf(request.name()));
    if (request.name().starts_with(kRecords))
      TY_RETURN_IF_ERROR(makeStoredFolder(path.substr(0, path.rfind('/'))));
    TY_ASSIGN_OR_RETURN(auto file,
                        createStored(path, request.several() ? Writers::kSeveral : Writers::kOne));
    upload = uploads_.emplace(request.upload(), Upload{std::move(file)}).first;
  }
  if (upload == uploads_.end())
    return absl::AbortedError(fmt::format("{}: what was written of it is gone", request.name()));
  upload->second.used = clock_.now();
  WritableFile& file = *upload->second.file;
  // An answer was lost.
  if (file.size() == request.offset() + request.bytes().size()) return absl::OkStatus();
  if (file.size() != request.offset())
    return absl::AbortedError(fmt::format("{}: a part was left out", request.name()));
  return file.write(bytesOf(request.bytes()));
}

Status FileService::commit(WritableFile& file, const v1::EndFileRequest& request) {
  if (file.size() != request.size() || file.sha256() != request.sha256())
    return absl::DataLossError("what has come is not what was sent");
  return request.exclusively() ? file.commitExclusively() : file.commit();
}

Status FileService::end(const v1::EndFileRequest& request) {
  const auto before =
      std::ranges::find(ended_, request.upload(), [](const auto& e) { return e.first; });
  if (before != ended_.end()) return before->second;
  const auto upload = uploads_.extract(request.upload());
  if (upload.empty()) {
    return request.commit() ? absl::AbortedError("what was written is gone") : absl::OkStatus();
  }
  Status done;
  if (request.commit()) done = commit(*upload.mapped().file, request);
  ended_.emplace_back(request.upload(), done);
  if (ended_.size() > kRemembered) ended_.pop_front();
  return done;
}

void FileService::forgetIdle() {
  const TimePoint last = clock_.now() - kIdle;
  std::erase_if(uploads_, [&](const auto& entry) { return entry.second.used < last; });
  std::erase_if(open_, [&](const auto& entry) { return entry.second.used < last; });
}

}  // namespace trainyard::runtime
