// A task whose checkpoints are in an object store (spec.storage.s3).
#pragma once

#include <string>

#include "operator/kube/render/internal/overlay.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::control::internal {

// "s3://BUCKET/PREFIX/checkpoints"; "": they are in the job directory.
std::string checkpointPlace(const v1::TrainingJob& job);

// Tells the container where the store is and who we are to it, by the variables that AWS's own
// tools read; what the template sets stays. Adds the volume with the certificate authority.
void reachObjectStore(const v1::TrainingJob& job, Json& spec, Json& container);

}  // namespace trainyard::control::internal
