// The queue of a FakeCluster's jobs.
#include "fmt/format.h"
#include "tests/fakes/fake_cluster.h"

namespace trainyard::control {
namespace {

std::string describeClaim(const QuotaClaim& claim) {
  std::string text = fmt::format("claim quota: ps={} workers={}", claim.ps, claim.workers);
  if (claim.least_workers < claim.workers) text += fmt::format(" least={}", claim.least_workers);
  if (claim.ps_done > 0) text += fmt::format(" ps-done={}", claim.ps_done);
  if (claim.workers_done > 0) text += fmt::format(" workers-done={}", claim.workers_done);
  if (claim.ready) text += " ready";
  if (claim.end == QuotaEnd::kSucceeded) text += " succeeded";
  if (claim.end == QuotaEnd::kFailed) text += " failed";
  return text;
}

}  // namespace

void FakeCluster::setQueue(const JobKey& key, const std::string& queue) {
  change(key, [&](Record& record) { record.quota.emplace().queue = queue; });
}

void FakeCluster::grantQuota(const JobKey& key, int workers) {
  change(key, [workers](Record& record) {
    QuotaObservation& quota = *record.quota;
    quota.held = quota.granted = true;
    quota.withdrawn = false;
    quota.workers_granted = workers;
    quota.message.clear();
  });
}

void FakeCluster::withdrawQuota(const JobKey& key, const std::string& message) {
  change(key, [&message](Record& record) {
    record.quota->withdrawn = true;
    record.quota->message = message;
  });
}

void FakeCluster::explainQuota(const JobKey& key, const std::string& message) {
  change(key, [&message](Record& record) { record.quota->message = message; });
}

Status FakeCluster::claimQuota(const v1::TrainingJob& job, const QuotaClaim& claim) {
  return doWrite(job, FakeCall::kQuota, [&](Record& record) -> StatusOr<std::string> {
    QuotaObservation& quota = *record.quota;
    if (quota.held) {
      const QuotaClaim& was = *quota.claim;
      const bool same = claim.ps == was.ps && claim.workers == was.workers;
      if (!same || claim.ps_done < was.ps_done || claim.workers_done < was.workers_done)
        return absl::FailedPreconditionError("a claim does not change while quota is held");
    }
    quota.claim = claim;
    quota.outdated = false;
    if (claim.end != QuotaEnd::kOpen) quota.held = quota.granted = false;
    return describeClaim(claim);
  });
}

Status FakeCluster::giveQuotaBack(const v1::TrainingJob& job) {
  return doWrite(job, FakeCall::kQuota, [](Record& record) -> StatusOr<std::string> {
    QuotaObservation& quota = *record.quota;
    if (!quota.withdrawn) return absl::FailedPreconditionError("nobody wants it");
    quota.held = quota.granted = quota.withdrawn = false;
    quota.claim->ready = false;
    quota.claim->ps_done = quota.claim->workers_done = 0;
    return std::string("give quota back");
  });
}

Status FakeCluster::dropClaim(const v1::TrainingJob& job) {
  return doWrite(job, FakeCall::kQuota, [](Record& record) -> StatusOr<std::string> {
    const std::string queue = record.quota->queue;
    record.quota.emplace().queue = queue;
    return std::string("leave the queue");
  });
}

}  // namespace trainyard::control
