// The verbs of the Kubernetes API on JSON objects, over an HttpTransport.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "nlohmann/json.hpp"
#include "operator/cache/list_watch.h"
#include "operator/kube/http.h"

namespace trainyard::control {

struct KubeResource {
  std::string_view group;  // "" for the core
  std::string_view version;
  std::string_view plural;
  std::string_view kind;
};
inline constexpr KubeResource kPods{"", "v1", "pods", "Pod"};
inline constexpr KubeResource kServices{"", "v1", "services", "Service"};
inline constexpr KubeResource kEndpointSlices{"discovery.k8s.io", "v1", "endpointslices",
                                              "EndpointSlice"};
inline constexpr KubeResource kConfigMaps{"", "v1", "configmaps", "ConfigMap"};
inline constexpr KubeResource kPersistentVolumeClaims{"", "v1", "persistentvolumeclaims",
                                                      "PersistentVolumeClaim"};
inline constexpr KubeResource kSecrets{"", "v1", "secrets", "Secret"};
inline constexpr KubeResource kNodes{"", "v1", "nodes", "Node"};
inline constexpr KubeResource kNamespaces{"", "v1", "namespaces", "Namespace"};
inline constexpr KubeResource kEvents{"", "v1", "events", "Event"};
inline constexpr KubeResource kLeases{"coordination.k8s.io", "v1", "leases", "Lease"};
inline constexpr KubeResource kTrainingJobs{"trainyard.dev", "v1alpha1", "trainingjobs",
                                            "TrainingJob"};
inline constexpr KubeResource kNetworkPolicies{"networking.k8s.io", "v1", "networkpolicies",
                                               "NetworkPolicy"};
inline constexpr KubeResource kCoschedulingPodGroups{"scheduling.x-k8s.io", "v1alpha1", "podgroups",
                                                     "PodGroup"};
inline constexpr KubeResource kVolcanoPodGroups{"scheduling.volcano.sh", "v1beta1", "podgroups",
                                                "PodGroup"};
// Kueue's, of which those that have no namespace are the administrators'.
inline constexpr KubeResource kWorkloads{"kueue.x-k8s.io", "v1beta1", "workloads", "Workload"};
inline constexpr KubeResource kResourceFlavors{"kueue.x-k8s.io", "v1beta1", "resourceflavors",
                                               "ResourceFlavor"};
inline constexpr KubeResource kWorkloadPriorityClasses{
    "kueue.x-k8s.io", "v1beta1", "workloadpriorityclasses", "WorkloadPriorityClass"};
inline constexpr KubeResource kPriorityClasses{"scheduling.k8s.io", "v1", "priorityclasses",
                                               "PriorityClass"};

// What may be left out is empty.
struct ListQuery {
  std::string ns;  // "": all namespaces, or a resource without namespaces
  std::string label_selector;
  std::string field_selector;
};

struct DeleteQuery {
  // Both are preconditions: FAILED_PRECONDITION when the object is another one by now.
  std::string uid;
  std::string resource_version;
  std::optional<std::int64_t> grace_seconds;
  std::string propagation;  // Background, Foreground or Orphan
};

struct PodLogQuery {
  std::string container;  // "": the pod's only one
  bool follow = false;    // until the container ends
  // The last lines only; also where `follow`, before what comes later.
  std::optional<std::int64_t> tail;
  std::string since;  // RFC 3339; "": from the beginning
};

enum class UnknownFields { kDrop, kStrict };

struct KubeClientOptions {
  HttpLimits limits;  // of every call but watch; `stop` ends waiting and calls
  // A server that says how long to wait (429 and 503 with Retry-After: the request was not carried
  // out) is asked again after that time or a growing pause, the longer of them, as often as this
  // allows in all.
  Duration max_wait = std::chrono::seconds(10);
  // A watch in which nothing comes for so long is given up, since the connection may be dead. The
  // server sends a bookmark about every minute.
  Duration watch_silence = std::chrono::seconds(90);
  std::string user_agent = "trainyard";
  // Asked right before every request that writes, also when it is sent again: false makes that
  // UNAVAILABLE, unsent. Never empty.
  std::function<bool()> may_write = [] { return true; };
};

// Errors of every verb:
//   NOT_FOUND            404
//   ALREADY_EXISTS       409 of a create: an object of that name is there, ours or not
//   FAILED_PRECONDITION  409 of anything else: resourceVersion or uid are not those of the object.
//                        Read again; what was read before is out of date
//   ABORTED              409 of a create that is no ALREADY_EXISTS (a quota's counter was
//                        contended): try again
//   RESOURCE_EXHAUSTED   403 because of a quota; class kRetry
//   PERMISSION_DENIED    403 otherwise, also in a namespace that is being deleted
//   UNAUTHENTICATED      401, after the token was read again
//   INVALID_ARGUMENT     400, 413, 415, 422: the object as such; the message names the fields
//   OUT_OF_RANGE         410: the resourceVersion or continue token is too old
//   UNAVAILABLE          429, 5xx, no connection; retryAfter() has the server's wish, if any
//   DEADLINE_EXCEEDED, CANCELLED  as HttpTransport
//   INTERNAL             an answer that is no JSON object
// maybeHappened() (operator/kube/http.h) is true for writes whose answer was lost: get and see.
// kubeReason() has the word that Kubernetes uses.
//
// Thread-safe as the transport is. Blocking.
class KubeClient {
 public:
  // `clock` only for waiting. Both references outlive the object.
  KubeClient(HttpTransport& transport, const Clock& clock, KubeClientOptions options = {});
  // The same with other limits.
  KubeClient with(HttpLimits limits) const;
  const KubeClientOptions& options() const { return options_; }

  using Json = nlohmann::json;

  StatusOr<Json> get(const KubeResource& resource, std::string_view ns, std::string_view name);
  // One page; from the newest state (a quorum read) where `continue_token` is empty.
  StatusOr<ListPage> listPage(const KubeResource& resource, const ListQuery& query, int limit,
                              std::string_view continue_token);
  // All pages. A continue token that expires meanwhile starts anew, without pages.
  StatusOr<ListPage> list(const KubeResource& resource, const ListQuery& query);

  // `object` needs no apiVersion and kind: they are filled in. The object as it is afterwards.
  // Fields that the server does not know it drops, or with kStrict refuses: INVALID_ARGUMENT.
  StatusOr<Json> create(const KubeResource& resource, std::string_view ns, Json object,
                        UnknownFields unknown = UnknownFields::kDrop);
  // Replaces it; conditional where object.metadata.resourceVersion is set (set it).
  StatusOr<Json> update(const KubeResource& resource, std::string_view ns, Json object);
  // The same for its status subresource.
  StatusOr<Json> updateStatus(const KubeResource& resource, std::string_view ns, Json object);
  // A JSON merge patch (RFC 7386); conditional where patch.metadata has resourceVersion or uid.
  // `subresource` is "", "status", "scale", ...
  StatusOr<Json> patchMerge(const KubeResource& resource, std::string_view ns,
                            std::string_view name, const Json& patch,
                            std::string_view subresource = "");
  // Server-side apply: creates the object, or makes the fields that `object` names what it says and
  // takes away those that the same manager named before and does not any more. Fields that the
  // server does not know are INVALID_ARGUMENT.
  struct ApplyOptions {
    std::string_view field_manager;
    bool force = false;    // takes over fields that others have set: FAILED_PRECONDITION otherwise
    bool dry_run = false;  // only says what would be
  };
  StatusOr<Json> apply(const KubeResource& resource, std::string_view ns, Json object,
                       const ApplyOptions& options);
  // The object as it is while it is being deleted (metadata.deletionTimestamp); when it is gone at
  // once that or an object of kind Status.
  StatusOr<Json> remove(const KubeResource& resource, std::string_view ns, std::string_view name,
                        const DeleteQuery& query);

  // Blocks until the server ends the watch: OK. An ERROR event is a failure by its status, as 410
  // for OUT_OF_RANGE. `on_event` is called on this thread; false ends the watch. `timeout` is what
  // the server is asked for; one that goes on much longer, or is silent too long, is given up:
  // DEADLINE_EXCEEDED.
  Status watch(const KubeResource& resource, const ListQuery& query, const WatchRequest& request,
               const std::function<bool(WatchEvent)>& on_event);

  // Blocks until the log ends: OK. `on_line` is called on this thread with each line, which begins
  // with the time when the node read it (RFC 3339 with up to nanoseconds) and a blank; false ends
  // it. INVALID_ARGUMENT: the container has not started yet. Under the client's limits: a log that
  // is followed wants others.
  Status podLog(std::string_view ns, std::string_view pod, const PodLogQuery& query,
                const std::function<bool(std::string_view)>& on_line);

  // A plain GET below the server's path, for "/version", "/readyz": the text of a 200.
  StatusOr<std::string> getRaw(std::string_view target);

 private:
  StatusOr<HttpResponse> send(const HttpRequest& request);
  // A response of many lines. `on_line` may fail. `rest` (may be null): what came after the last
  // line.
  Status streamLines(const HttpRequest& request, const HttpLimits& limits,
                     const std::function<StatusOr<bool>(std::string_view)>& on_line,
                     std::string* rest = nullptr);
  StatusOr<Json> sendJson(const HttpRequest& request, std::string_view what);
  StatusOr<Json> write(const KubeResource& resource, std::string_view ns, Json object,
                       std::string_view subresource);
  HttpRequest request(std::string method, std::string target) const;

  HttpTransport& transport_;
  const Clock& clock_;
  const KubeClientOptions options_;
};

// How long the server asks to be left alone.
std::optional<Duration> retryAfter(const Status& status);
// Kubernetes's word for a failure: AlreadyExists, Conflict, Forbidden, QuotaExceeded,
// NamespaceTerminating, Invalid, Expired, ...; empty for failures that are not the server's.
std::string kubeReason(const Status& status);

// The path of a resource: "/api/v1/namespaces/ns/pods/name/status". Empty parts are left out.
std::string resourcePath(const KubeResource& resource, std::string_view ns, std::string_view name,
                         std::string_view subresource);

// Lists and watches one resource, for a Reflector. `client` outlives it.
std::unique_ptr<ListWatch> makeListWatch(KubeClient& client, const KubeResource& resource,
                                         ListQuery query);

}  // namespace trainyard::control
