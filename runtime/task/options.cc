#include "runtime/task/options.h"

#include <algorithm>

#include "base/rpc/task_server.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/names.h"
#include "runtime/files/file_service.h"
#include "runtime/files/remote_files.h"
#include "runtime/stream/tls_stream.h"

namespace trainyard::runtime {
namespace {

bool encryptsData(const v1::TrainingJob& job) {
  return job.spec().network().encryption() == "TLS";
}

}  // namespace

StatusOr<std::string> jobDigest(const v1::TrainingJob& job) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    v1::Training training = job.spec().training();
    training.clear_steps();  // may change while the job runs, and the coordinator says it
    training.SerializeToCodedStream(&coded);
  }
  if (const std::string& path = job.spec().training().model().path(); !path.empty()) {
    TY_ASSIGN_OR_RETURN(const std::string content, sha256File(path));
    bytes += content;
  }
  // Whoever does not encrypt would wait for those who do.
  if (encryptsData(job)) bytes += "encrypted";
  return sha256Hex(bytes);
}

TaskServerOptions taskServerOptions(const TaskOptions& options) {
  return {.what = taskName(options.id.role(), options.id.index()),
          .bind = options.bind,
          .port = options.port,
          .identity = options.keys.control};
}

StatusOr<std::shared_ptr<const stream::Encryption>> dataEncryption(const TaskOptions& options) {
  if (!encryptsData(options.job)) return nullptr;
  return stream::TlsContext::make(options.keys.control);
}

bool isAsynchronous(const v1::UpdateSpec& update) {
  return update.mode() == "Async" || update.mode() == "BoundedDelay";
}

bool isRing(const v1::TrainingJob& job) {
  return job.spec().strategy() == "AllReduce";
}

int processesPerPod(const v1::TrainingJob& job) {
  return std::max(1, job.spec().worker().processes_per_pod());
}

int localRank(const TaskOptions& options) {
  const auto workers = [&](auto wanted) {
    return std::count_if(options.membership.tasks().begin(), options.membership.tasks().end(),
                         [&](const v1::MemberTask& task) {
                           return task.id().role() == v1::ROLE_WORKER && wanted(task);
                         });
  };
  for (const v1::MemberTask& own : options.membership.tasks()) {
    if (own.id().role() != v1::ROLE_WORKER || own.id().index() != options.id.index()) continue;
    return static_cast<int>(workers([&](const v1::MemberTask& task) {
      return task.ip() == own.ip() && task.id().index() < own.id().index();
    }));
  }
  return 0;
}

bool hostsCoordinator(const TaskOptions& options) {
  const v1::Role role = isRing(options.job) ? v1::ROLE_WORKER : v1::ROLE_PS;
  return options.id.role() == role && options.id.index() == 0;
}

bool coordinatorHasDisk(const v1::TrainingJob& job) {
  return job.spec().storage().access() == "Coordinator";
}

std::unique_ptr<FileService> serveFiles(const TaskOptions& options) {
  return std::make_unique<FileService>(options.checkpointDir(), *options.clock,
                                       options.job_dir + "/records");
}

void useJobsDisk(TaskOptions& options) {
  if (!coordinatorHasDisk(options.job) || hostsCoordinator(options)) return;
  auto files = std::make_unique<RemoteFiles>(RemoteFiles::Options{.identity = options.keys.control},
                                             *options.clock);
  files->setAddress(coordinatorAddress(options.job, options.membership));
  options.files = files.get();
  options.checkpoints = kRemoteFiles;
  useFilesOfTask(std::move(files));
}

std::string TaskOptions::recordsPlace() const {
  if (files != nullptr) return kRemoteRecords;
  return isRemote(checkpoints) ? checkpoints.substr(0, checkpoints.rfind('/')) + "/records" : "";
}

std::string coordinatorAddress(const v1::TrainingJob& job, const v1::Membership& membership) {
  const v1::Role role = isRing(job) ? v1::ROLE_WORKER : v1::ROLE_PS;
  for (const v1::MemberTask& task : membership.tasks()) {
    if (task.id().role() == role && task.id().index() == 0 && task.port() != 0) {
      return fmt::format("{}:{}", task.ip(), task.port());
    }
  }
  return "";
}

GridServers gridServers(const v1::TrainingJob& job, const v1::Membership& membership) {
  GridServers grid;
  grid.start = membership.grid_ps();
  if (grid.start == 0) {
    for (const v1::MemberTask& task : membership.tasks())
      grid.start += task.id().role() == v1::ROLE_PS;
  }
  grid.most = std::max(grid.start, job.spec().ps().max_replicas());
  return grid;
}

v1::MemberReport identifiedMemberReport(const TaskOptions& options, const std::string& job_digest) {
  v1::MemberReport report;
  report.set_job_uid(options.job.metadata().uid());
  report.set_protocol_min(kProtocol);
  report.set_protocol_max(kProtocol);
  *report.mutable_id() = options.id;
  *report.mutable_incarnation() = options.self;
  report.set_job_digest(job_digest);
  return report;
}

namespace {

template <typename Message>
Message identified(const TaskOptions& options) {
  Message message;
  message.set_job_uid(options.job.metadata().uid());
  *message.mutable_id() = options.id;
  *message.mutable_incarnation() = options.self;
  return message;
}

}  // namespace

v1::RuntimeReport identifiedRuntimeReport(const TaskOptions& options) {
  return identified<v1::RuntimeReport>(options);
}

v1::Measurements identifiedMeasurements(const TaskOptions& options) {
  return identified<v1::Measurements>(options);
}

}  // namespace trainyard::runtime
