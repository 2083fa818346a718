// PersistentVolumeClaims of tasks (volumeClaimTemplates): each task has its own, which outlive its
// pods.
#pragma once

#include "trainyard/v1/job.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::control {

using ClaimTemplates = google::protobuf::RepeatedPtrField<v1::VolumeClaimTemplate>;
const ClaimTemplates& claimTemplates(const v1::JobSpec& spec, v1::Role role);

// Whether claims of the role go with the job, and with a task that is not wanted any more.
bool claimsGoWithTheJob(const v1::JobSpec& spec, v1::Role role);
bool claimsGoWithTheTask(const v1::JobSpec& spec, v1::Role role);

}  // namespace trainyard::control
