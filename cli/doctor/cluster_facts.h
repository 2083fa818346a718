// What jobs of a cluster need of it, as its apiserver tells it now.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "cli/jobs/job_view.h"
#include "operator/job/definition.h"
#include "operator/kube/http.h"

namespace trainyard::cli {

// What was not asked is an error too, so that nothing passes for known.
inline Status notAsked() {
  return absl::UnknownError("not asked");
}

struct KubeVersion {
  int major = 0;
  int minor = 0;
  std::string text;  // "v1.34.2"
};

struct DefinitionFacts {
  bool there = false;
  bool served = false;  // in the version that we speak
  std::string trouble;  // why the apiserver does not take it; "": it does
  control::DefinitionDifference difference;
};

// One thing that somebody may do, or may not.
struct Right {
  std::string verb;
  std::string group;
  std::string resource;
  std::string subresource = {};
  std::string needed_by = {};  // "trainyard logs"
  bool allowed = false;
};

struct LeaderFacts {
  std::string holder;            // "": nobody leads
  bool fresh = false;            // renewed in time
  std::int64_t age_seconds = 0;  // since it was renewed, by this machine's clock
};

// A scheduler of jobs, by its API group.
struct QueueKind {
  std::string_view group;
  std::string_view name;  // that people know
};
inline constexpr QueueKind kKueue{"kueue.x-k8s.io", "Kueue"};
inline constexpr QueueKind kVolcano{"scheduling.volcano.sh", "Volcano"};
inline constexpr QueueKind kCoscheduling{"scheduling.x-k8s.io", "scheduler-plugins (coscheduling)"};

struct OperatorFacts {
  std::string ns;
  std::string name;
  std::string image;
  std::string version;               // "": it does not say
  std::string account;               // its ServiceAccount
  std::vector<std::string> watches;  // empty: all namespaces
  std::string lease;                 // "": it does not elect a leader
  bool makes_policies = false;
  const QueueKind* gang = nullptr;  // whose PodGroups it makes; null: none
  bool queues = false;              // jobs wait in queues of Kueue
  int wanted = 0;
  int ready = 0;
  std::string trouble;  // why not all are ready
  StatusOr<LeaderFacts> leader = notAsked();
  StatusOr<std::vector<Right>> rights = notAsked();  // in the namespace that is meant

  bool looksAfter(const std::string& space) const {
    return watches.empty() || std::find(watches.begin(), watches.end(), space) != watches.end();
  }
};

struct OperatorsFacts {
  std::vector<OperatorFacts> found;
  bool everywhere = false;  // all namespaces were looked through
};

struct NamespaceFacts {
  bool there = false;
  bool terminating = false;
  std::string pod_security;  // the standard that is enforced; "": none
};

struct NodesFacts {
  int all = 0;
  int usable = 0;         // ready, and not cordoned
  int amd64 = 0;          // of these, those on which our images run
  std::int64_t gpus = 0;  // nvidia.com/gpu that the usable ones can give
};

struct ClaimFacts {
  std::string name;
  std::string phase;  // Bound, Pending, Lost
  std::string storage_class = {};
  bool many_writers = false;  // ReadWriteMany
};

struct StorageClassFacts {
  std::string name;
  std::string provisioner;
  bool is_default = false;
  bool waits = false;  // binds a claim when a pod uses it
};

struct QuotaUse {
  std::string quota;
  std::string resource;
  std::string used;
  std::string hard;
};

struct ClusterFacts {
  std::string server;
  std::string ns;
  StatusOr<KubeVersion> version = notAsked();
  // Else nothing more was asked. Its version may be hidden from a user whom it knows.
  bool answers() const { return version.ok() || absl::IsPermissionDenied(version.status()); }
  StatusOr<DefinitionFacts> definition = notAsked();
  StatusOr<OperatorsFacts> operators = notAsked();
  StatusOr<std::vector<Right>> rights = notAsked();  // of the user
  StatusOr<NamespaceFacts> space = notAsked();
  StatusOr<NodesFacts> nodes = notAsked();
  StatusOr<std::vector<StorageClassFacts>> storage_classes = notAsked();
  StatusOr<std::vector<ClaimFacts>> claims = notAsked();
  StatusOr<std::vector<QuotaUse>> used_up = notAsked();
  StatusOr<int> network_policies = notAsked();
  StatusOr<std::vector<std::string>> queues =
      notAsked();  // other schedulers of jobs that are there
  StatusOr<std::vector<JobView>> jobs = notAsked();
};

struct ClusterPlace {
  std::string server;
  std::string ns;
  std::string user_agent;
  // How long a Lease is watched that seems old, because clocks may differ.
  Duration lease_patience = std::chrono::seconds(6);
};

// Asks one thing after the other, in half a minute at most: after the first question that is not
// answered at all the others are not asked. Writes nothing: reviews of rights are questions.
ClusterFacts collectCluster(control::HttpTransport& transport, const Clock& clock,
                            const ClusterPlace& place);

}  // namespace trainyard::cli
