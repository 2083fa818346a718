#include "operator/kube/root_secret.h"

#include "absl/strings/escaping.h"
#include "base/core/log.h"
#include "base/core/strings.h"
#include "base/json/members.h"
#include "base/security/random.h"
#include "fmt/format.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

constexpr const char* kMember = "root";

Json newSecret(const std::string& ns, const std::string& name) {
  return {{"metadata",
           {{"name", name},
            {"namespace", ns},
            {"labels", {{"app.kubernetes.io/part-of", "trainyard"}}},
            {"annotations",
             {{"trainyard.dev/description",
               "Running jobs are spoken to with keys that come from it: keep it."}}}}},
          {"type", "Opaque"},
          {"stringData", {{kMember, randomHex(kMinRootSecret)}}}};
}

StatusOr<std::string> rootOf(const Json& secret, const std::string& ns, const std::string& name) {
  std::string root;
  if (absl::Base64Unescape(textAt(member(secret, "data"), kMember), &root) &&
      root.size() >= kMinRootSecret)
    return root;
  return invalidInput(
      fmt::format("Secret {}/{}", ns, name),
      fmt::format("expected a member `{}` of at least {} bytes", kMember, kMinRootSecret));
}

}  // namespace

StatusOr<std::string> findOrMakeRootSecret(KubeClient& client, const std::string& ns,
                                           const std::string& name) {
  StatusOr<Json> found = client.get(kSecrets, ns, name);
  if (absl::IsNotFound(found.status())) {
    StatusOr<Json> made = client.create(kSecrets, ns, newSecret(ns, name));
    if (made.ok())
      TY_INFO("made Secret {}/{}, of which the keys of all jobs are derived", ns, name);
    // Somebody else was first, or the answer was lost.
    if (absl::IsAlreadyExists(made.status()) || (!made.ok() && maybeHappened(made.status())))
      made = client.get(kSecrets, ns, name);
    found = std::move(made);
  }
  TY_RETURN_IF_ERROR(annotate(found.status(), fmt::format("Secret {}/{}", ns, name)));
  return rootOf(*found, ns, name);
}

}  // namespace trainyard::control
