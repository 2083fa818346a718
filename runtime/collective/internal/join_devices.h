// The part of forming a group that is about the ranks' devices.
#pragma once

#include <memory>

#include "runtime/collective/group.h"

namespace trainyard::runtime::collective::internal {

// All ranks call it; each learns from the others what they have. Null where they are not to be
// used, which rank 0 says once with the reason. ABORTED as of makeDeviceCollective(): nothing more
// goes over this transport, but the ranks may connect anew and do without.
StatusOr<std::unique_ptr<Collective>> joinDevices(const std::shared_ptr<transport::Transport>& tcp,
                                                  const GroupOptions& options);

}  // namespace trainyard::runtime::collective::internal
