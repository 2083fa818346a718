#include "operator/kube/lease_store.h"

#include <utility>

#include "base/core/rfc3339.h"
#include "base/json/members.h"
#include "fmt/format.h"

namespace trainyard::control {

namespace {

using Json = nlohmann::json;

constexpr int kMicroTime = 6;  // digits of the second's fraction in Kubernetes's MicroTime

UnixMillis timeAt(const Json& spec, std::string_view name) {
  return parseRfc3339(textAt(spec, name));
}

class KubeLeaseStore : public LeaseStore {
 public:
  KubeLeaseStore(HttpTransport& transport, const Clock& clock, std::string ns, std::string name)
      : client_(transport, clock), ns_(std::move(ns)), name_(std::move(name)) {}

  StatusOr<LeaseRecord> read(Duration deadline) override {
    return fromAnswer(within(deadline).get(kLeases, ns_, name_));
  }
  StatusOr<LeaseRecord> create(const LeaseRecord& record, Duration deadline) override {
    return fromAnswer(within(deadline).create(kLeases, ns_, toLease(record, ns_, name_)));
  }
  StatusOr<LeaseRecord> update(const LeaseRecord& record, Duration deadline) override {
    return fromAnswer(within(deadline).update(kLeases, ns_, toLease(record, ns_, name_)));
  }

 private:
  KubeClient within(Duration deadline) const {
    HttpLimits limits;
    limits.deadline = deadline;
    limits.inactivity = deadline;
    return client_.with(std::move(limits));
  }
  static StatusOr<LeaseRecord> fromAnswer(const StatusOr<Json>& answer) {
    TY_RETURN_IF_ERROR(answer.status());
    return fromLease(*answer);
  }

  const KubeClient client_;
  const std::string ns_;
  const std::string name_;
};

}  // namespace

Json toLease(const LeaseRecord& record, const std::string& ns, const std::string& name) {
  Json lease{{"metadata", {{"name", name}, {"namespace", ns}}},
             {"spec",
              {{"leaseDurationSeconds", record.duration_seconds},
               {"acquireTime", formatRfc3339(record.acquired, kMicroTime)},
               {"renewTime", formatRfc3339(record.renewed, kMicroTime)},
               {"leaseTransitions", record.transitions}}}};
  if (!record.holder.empty()) lease["spec"]["holderIdentity"] = record.holder;
  if (!record.resource_version.empty()) {
    lease["metadata"]["resourceVersion"] = record.resource_version;
  }
  return lease;
}

StatusOr<LeaseRecord> fromLease(const Json& lease) {
  LeaseRecord record;
  record.resource_version = textAt(member(lease, "metadata"), "resourceVersion");
  if (record.resource_version.empty()) {
    return absl::InternalError("a Lease without metadata.resourceVersion");
  }
  const Json& spec = member(lease, "spec");
  record.holder = textAt(spec, "holderIdentity");
  record.duration_seconds = numberAt(spec, "leaseDurationSeconds");
  record.acquired = timeAt(spec, "acquireTime");
  record.renewed = timeAt(spec, "renewTime");
  record.transitions = numberAt(spec, "leaseTransitions");
  return record;
}

std::unique_ptr<LeaseStore> makeLeaseStore(HttpTransport& transport, const Clock& clock,
                                           std::string ns, std::string name) {
  return std::make_unique<KubeLeaseStore>(transport, clock, std::move(ns), std::move(name));
}

}  // namespace trainyard::control
