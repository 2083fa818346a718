#include <utility>

#include "base/json/members.h"
#include "cli/doctor/internal/collect.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::json;

constexpr control::KubeResource kReviews{"authorization.k8s.io", "v1", "subjectaccessreviews",
                                         "SubjectAccessReview"};
constexpr control::KubeResource kSelfReviews{"authorization.k8s.io", "v1",
                                             "selfsubjectaccessreviews", "SelfSubjectAccessReview"};
constexpr char kOurs[] = "trainyard.dev";

// As docs/cluster_jobs.md has it.
std::vector<Right> userRights() {
  return {{"get", kOurs, "trainingjobs", "", "trainyard describe"},
          {"list", kOurs, "trainingjobs", "", "trainyard get"},
          {"create", kOurs, "trainingjobs", "", "trainyard submit"},
          {"patch", kOurs, "trainingjobs", "", "trainyard submit, suspend, resume, scale --ps"},
          {"patch", kOurs, "trainingjobs", "scale", "trainyard scale --workers"},
          {"delete", kOurs, "trainingjobs", "", "trainyard delete"},
          {"list", "", "pods", "", "trainyard describe, logs"},
          {"get", "", "pods", "log", "trainyard logs"},
          {"get", "", "pods", "proxy", "trainyard top"},
          {"list", "", "events", "", "trainyard describe"}};
}

// As the chart's rules have it, without reading what is written anyway.
std::vector<Right> operatorRights(const OperatorFacts& found) {
  std::vector<Right> rights = {{"watch", kOurs, "trainingjobs", ""},
                               {"patch", kOurs, "trainingjobs", "status"},
                               {"update", kOurs, "trainingjobs", "finalizers"},
                               {"watch", "", "pods", ""},
                               {"create", "", "pods", ""},
                               {"patch", "", "pods", ""},
                               {"delete", "", "pods", ""},
                               {"create", "", "services", ""},
                               {"create", "discovery.k8s.io", "endpointslices", ""},
                               {"create", "", "configmaps", ""},
                               {"create", "", "secrets", ""},
                               {"create", "", "persistentvolumeclaims", ""},
                               {"list", "", "persistentvolumeclaims", ""},
                               {"delete", "", "persistentvolumeclaims", ""},
                               {"create", "", "events", ""}};
  if (found.makes_policies)
    rights.push_back({"create", "networking.k8s.io", "networkpolicies", ""});
  if (found.gang != nullptr)
    rights.push_back({"create", std::string(found.gang->group), "podgroups", ""});
  if (found.queues) {
    for (const char* verb : {"watch", "create", "patch", "delete"})
      rights.push_back({verb, std::string(kKueue.group), "workloads", ""});
    rights.push_back({"patch", std::string(kKueue.group), "workloads", "status"});
    rights.push_back({"get", std::string(kKueue.group), "resourceflavors", ""});
    rights.push_back({"get", std::string(kKueue.group), "workloadpriorityclasses", ""});
    rights.push_back({"get", "scheduling.k8s.io", "priorityclasses", ""});
  }
  return rights;
}

// `spec` says who, where it is somebody else.
StatusOr<std::vector<Right>> reviewed(Questions& questions, const control::KubeResource& review,
                                      Json spec, const std::string& ns, std::vector<Right> rights) {
  for (Right& right : rights) {
    spec["resourceAttributes"] = {{"namespace", ns},
                                  {"verb", right.verb},
                                  {"group", right.group},
                                  {"resource", right.resource},
                                  {"subresource", right.subresource}};
    TY_ASSIGN_OR_RETURN(const Json answer, questions.review(review, {{"spec", spec}}));
    right.allowed = member(member(answer, "status"), "allowed") == true;
  }
  return rights;
}

}  // namespace

StatusOr<std::vector<Right>> collectUserRights(Questions& questions, const std::string& ns) {
  return reviewed(questions, kSelfReviews, Json::object(), ns, userRights());
}

StatusOr<std::vector<Right>> collectOperatorRights(Questions& questions, const OperatorFacts& found,
                                                   const std::string& ns) {
  const Json who{
      {"user", fmt::format("system:serviceaccount:{}:{}", found.ns, found.account)},
      {"groups",
       {"system:serviceaccounts", "system:serviceaccounts:" + found.ns, "system:authenticated"}}};
  return reviewed(questions, kReviews, who, ns, operatorRights(found));
}

}  // namespace trainyard::cli
