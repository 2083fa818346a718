// The Secret with what the keys of all jobs are derived from.
#pragma once

#include <string>

#include "operator/kube/client.h"

namespace trainyard::control {

// At least so many bytes, so that nobody can guess them.
inline constexpr std::size_t kMinRootSecret = 32;

// The member `root` of the Secret. Where there is none, one is made; of several operators that make
// it at one time one succeeds, and all return what that one made. It is nobody's: neither the
// chart's labels nor an owner, so that nothing that is rendered, pruned or uninstalled takes it
// along. INVALID_ARGUMENT: its member is missing or too short; others as KubeClient.
StatusOr<std::string> findOrMakeRootSecret(KubeClient& client, const std::string& ns,
                                           const std::string& name);

}  // namespace trainyard::control
