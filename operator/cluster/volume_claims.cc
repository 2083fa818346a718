#include "operator/cluster/volume_claims.h"

namespace trainyard::control {

namespace {

constexpr char kDelete[] = "Delete";

const v1::ClaimRetentionPolicy& retentionOf(const v1::JobSpec& spec, v1::Role role) {
  return role == v1::ROLE_PS ? spec.ps().persistent_volume_claim_retention_policy()
                             : spec.worker().persistent_volume_claim_retention_policy();
}

}  // namespace

const ClaimTemplates& claimTemplates(const v1::JobSpec& spec, v1::Role role) {
  return role == v1::ROLE_PS ? spec.ps().volume_claim_templates()
                             : spec.worker().volume_claim_templates();
}

bool claimsGoWithTheJob(const v1::JobSpec& spec, v1::Role role) {
  return retentionOf(spec, role).when_deleted() == kDelete;
}

bool claimsGoWithTheTask(const v1::JobSpec& spec, v1::Role role) {
  return retentionOf(spec, role).when_scaled() == kDelete;
}

}  // namespace trainyard::control
