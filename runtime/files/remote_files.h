// The files of the job's checkpoints where another task has the disk for them: a storage by way of
// the coordinator's process (FileService). Paths are "task://checkpoints/NAME", and of records of
// the chief "task://records/metrics.jsonl" and "task://records/events/NAME", which are not listed.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/core/clock.h"
#include "base/security/job_keys.h"
#include "grpcpp/grpcpp.h"
#include "runtime/storage/storage.h"
#include "trainyard/v1/files.grpc.pb.h"

namespace trainyard::runtime {

inline constexpr char kRemoteFiles[] = "task://checkpoints";
inline constexpr char kRemoteRecords[] = "task://records";
static_assert(std::string_view(kRemoteFiles).starts_with(kTaskScheme));

// Thread-safe. Calls that fail to reach the coordinator are tried again for half a minute; then
// they are UNAVAILABLE.
class RemoteFiles : public Storage {
 public:
  struct Options {
    TlsIdentity identity;  // RuntimeKeys::control
    Duration patience = std::chrono::seconds(30);
    Duration pause = std::chrono::milliseconds(200);  // between two tries
    Duration timeout = std::chrono::seconds(20);      // of one call
  };
  RemoteFiles(Options options, const Clock& clock);

  // Where the coordinator listens ("ip:port"); may change, "": not known.
  void setAddress(const std::string& address);

  StatusOr<std::vector<StoredFile>> list(const std::string& folder) override;
  StatusOr<std::shared_ptr<const ReadableFile>> open(const std::string& path) override;
  StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path, Writers writers) override;
  Status remove(const std::string& path) override;
  Status makeFolder(const std::string& folder) override;
  Status settle(const std::string& folder) override;
  bool vouches() const override { return false; }

 private:
  friend class RemoteFile;
  friend class RemoteWriter;
  using Stub = v1::CheckpointFiles::Stub;
  std::shared_ptr<Stub> stub();
  // `call` once, and again for as long as `patience` says; errors name `path`.
  using Call = std::function<grpc::Status(Stub&, grpc::ClientContext*)>;
  Status call(const std::string& path, const Call& call, Duration patience);
  Status call(const std::string& path, const Call& call);

  const Options options_;
  const Clock& clock_;
  std::mutex mutex_;
  std::string address_;
  std::shared_ptr<Stub> stub_;
};

}  // namespace trainyard::runtime
