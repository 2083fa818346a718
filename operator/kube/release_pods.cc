#include "operator/kube/release_pods.h"

#include <mutex>

#include "base/core/helper_pool.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "operator/kube/finalizer.h"
#include "operator/kube/render/names.h"

namespace trainyard::control {
namespace {

constexpr std::size_t kAtOnce = 16;  // as many as the client has connections

StatusOr<std::vector<nlohmann::json>> podsOf(KubeClient& client,
                                             const std::vector<std::string>& namespaces) {
  std::vector<nlohmann::json> pods;
  const std::vector<std::string> all{""};
  for (const std::string& ns : namespaces.empty() ? all : namespaces) {
    ListQuery query;
    query.ns = ns;
    query.label_selector = std::string(kJobNameLabel);
    TY_ASSIGN_OR_RETURN(ListPage page, client.list(kPods, query));
    std::move(page.items.begin(), page.items.end(), std::back_inserter(pods));
  }
  return pods;
}

}  // namespace

StatusOr<int> releasePods(KubeClient& client, const std::vector<std::string>& namespaces) {
  TY_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> pods, podsOf(client, namespaces));
  std::mutex mutex;
  int released = 0, failed = 0;
  Status first;
  HelperPool helpers(kAtOnce - 1);
  helpers.forEach(pods.size(), kAtOnce, [&](std::size_t i) {
    const auto pod = removeResultFinalizer(client, pods[i]);
    const std::lock_guard lock(mutex);
    first.Update(pod.status());
    failed += pod.ok() ? 0 : 1;
    released += pod.ok() && pod->has_value() ? 1 : 0;
    return true;
  });
  if (first.ok()) return released;
  return annotate(first, fmt::format("{} pods are released, {} are not", released, failed));
}

}  // namespace trainyard::control
