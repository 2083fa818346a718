#include "runtime/task/options.h"

#include "base/security/sha256.h"
#include "fmt/format.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/coordinator/coordinator.h"

namespace trainyard::runtime {

StatusOr<std::string> jobDigest(const v1::TrainingJob& job) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    job.spec().training().SerializeToCodedStream(&coded);
  }
  if (const std::string& path = job.spec().training().model().path(); !path.empty()) {
    TY_ASSIGN_OR_RETURN(const std::string content, sha256File(path));
    bytes += content;
  }
  return sha256Hex(bytes);
}

bool isAsynchronous(const v1::UpdateSpec& update) {
  return update.mode() == "Async" || update.mode() == "BoundedDelay";
}

std::string coordinatorAddress(const v1::Membership& membership) {
  for (const v1::MemberTask& task : membership.tasks()) {
    if (task.id().role() == v1::ROLE_PS && task.id().index() == 0) {
      return fmt::format("{}:{}", task.ip(), task.port());
    }
  }
  return "";
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

v1::RuntimeReport identifiedRuntimeReport(const TaskOptions& options) {
  v1::RuntimeReport report;
  report.set_job_uid(options.job.metadata().uid());
  *report.mutable_id() = options.id;
  *report.mutable_incarnation() = options.self;
  return report;
}

}  // namespace trainyard::runtime
