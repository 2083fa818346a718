// A job file becomes a TrainingJob of a cluster.
#pragma once

#include <string>

#include "base/core/status.h"
#include "cli/jobs/job_view.h"
#include "nlohmann/json.hpp"
#include "operator/kube/client.h"

namespace trainyard::cli {

struct SubmitOptions {
  std::string ns;         // where the job goes whose file names no namespace
  bool ns_given = false;  // the user has named it, so the file must not name another
  bool dry_run = false;   // the server says what would be
  bool force = false;     // also takes over fields that controllers hold
};

struct Submitted {
  JobView job;
  std::string what;  // "created", "configured" or "unchanged"
};

// `written`: the document as control::loadWrittenJob() gives it. Server-side apply, which takes
// over fields that people have set with kubectl or our own commands. INVALID_ARGUMENT: the
// namespaces differ, or the apiserver refuses the job (its message names the fields);
// FAILED_PRECONDITION: one of the name is being deleted, or a controller holds a field (the message
// names both); else errors of the client.
StatusOr<Submitted> submitJob(control::KubeClient& client, nlohmann::json written,
                              const SubmitOptions& options);

}  // namespace trainyard::cli
