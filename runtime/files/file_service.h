// The files of the job's checkpoints and of what the chief records, for tasks that have no disk for
// them (spec.storage.access: Coordinator). Beside the coordinator, in its process.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "base/core/work_thread.h"
#include "runtime/storage/storage.h"
#include "trainyard/v1/files.grpc.pb.h"

namespace trainyard::runtime {

// What a name begins with that is one of the chief's records.
inline constexpr std::string_view kRecords = "records/";

// Thread-safe. Must outlive its servers, which must know their clients (checkPeer()). Disks are
// waited for on a thread of its own, one call after the other. What somebody began to write and
// never ended goes after a while, or with this.
class FileService final : public v1::CheckpointFiles::CallbackService {
 public:
  // `folder`: of checkpoints, of a storage. `records`: the folder of metrics.jsonl and events/, of
  // this machine; "": there is none. `clock` outlives it.
  FileService(std::string folder, const Clock& clock, std::string records = "");

  grpc::ServerUnaryReactor* ListFiles(grpc::CallbackServerContext* context,
                                      const v1::ListFilesRequest* request,
                                      v1::ListFilesReply* reply) override;
  grpc::ServerUnaryReactor* ReadFile(grpc::CallbackServerContext* context,
                                     const v1::ReadFileRequest* request,
                                     v1::ReadFileReply* reply) override;
  grpc::ServerUnaryReactor* WriteFile(grpc::CallbackServerContext* context,
                                      const v1::WriteFileRequest* request,
                                      v1::WriteFileReply* reply) override;
  grpc::ServerUnaryReactor* EndFile(grpc::CallbackServerContext* context,
                                    const v1::EndFileRequest* request,
                                    v1::EndFileReply* reply) override;
  grpc::ServerUnaryReactor* RemoveFile(grpc::CallbackServerContext* context,
                                       const v1::RemoveFileRequest* request,
                                       v1::RemoveFileReply* reply) override;

 private:
  struct Upload {
    std::unique_ptr<WritableFile> file;
    TimePoint used{};
  };
  struct Open {
    std::shared_ptr<const ReadableFile> file;
    TimePoint used{};
  };
  // Carries out `work` on the thread, for clients that have proved themselves.
  template <typename Work>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Work work);
  // On the thread:
  StatusOr<std::string> pathOf(const std::string& name) const;
  Status list(v1::ListFilesReply& reply);
  Status read(const v1::ReadFileRequest& request, v1::ReadFileReply& reply);
  Status write(const v1::WriteFileRequest& request);
  Status end(const v1::EndFileRequest& request);
  Status commit(WritableFile& file, const v1::EndFileRequest& request);
  StatusOr<std::uint64_t> open(const v1::ReadFileRequest& request);
  void forgetIdle();

  const std::string folder_;
  const std::string records_;
  const Clock& clock_;
  std::map<std::string, Upload> uploads_;
  std::deque<std::pair<std::string, Status>> ended_;  // uploads of late, for who asks again
  std::map<std::uint64_t, Open> open_;                // by handle
  std::uint64_t handles_ = 0;
  WorkThread thread_;  // the last, so that what it uses is there
};

}  // namespace trainyard::runtime
