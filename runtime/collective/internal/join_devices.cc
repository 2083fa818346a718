#include "runtime/collective/internal/join_devices.h"

#include "base/core/log.h"
#include "runtime/collective/device_collective.h"
#include "runtime/collective/hosts.h"
#include "runtime/collective/internal/shared_transport.h"
#include "runtime/collective/internal/texts.h"

namespace trainyard::runtime::collective::internal {
namespace {

// What the job asks for and a device's library does not do. The same on all ranks.
const char* ruledOut(const GroupOptions& options) {
  if (options.collective.wire) return "they travel as 16-bit floats";
  if (options.collective.deterministic) return "sums are in the order of ranks";
  if (options.mesh.encryption && hostsOf(options.mesh.addresses, options.mesh.rank).count() > 1) {
    return "they are encrypted between hosts";
  }
  return nullptr;
}

StatusOr<DeviceVerdict> decide(const std::shared_ptr<transport::Transport>& tcp,
                               const GroupOptions& options) {
  if (const char* reason = ruledOut(options)) {
    return DeviceVerdict{false, options.device.library ? reason : ""};
  }
  CollectiveOptions messages;
  messages.timeout = options.mesh.timeout;
  const auto collective = makeMessageCollective(std::make_unique<SharedTransport>(tcp), messages);
  TY_ASSIGN_OR_RETURN(const auto offers, gatherTexts(*collective, offerOf(options.device)));
  return decideOnDevices(offers);
}

}  // namespace

StatusOr<std::unique_ptr<Collective>> joinDevices(const std::shared_ptr<transport::Transport>& tcp,
                                                  const GroupOptions& options) {
  TY_ASSIGN_OR_RETURN(const DeviceVerdict verdict, decide(tcp, options));
  if (!verdict.used) {
    if (options.mesh.rank == 0 && !verdict.reason.empty()) {
      TY_INFO("gradients of GPUs go through the host's memory: {}", verdict.reason);
    }
    return nullptr;
  }
  DeviceOptions device;
  device.timeout = options.collective.timeout;
  device.join_timeout = options.mesh.timeout;
  TY_ASSIGN_OR_RETURN(auto collective, makeDeviceCollective(std::make_unique<SharedTransport>(tcp),
                                                            *options.device.library, device));
  if (options.mesh.rank == 0) TY_INFO("gradients are put together on the ranks' GPUs");
  return collective;
}

}  // namespace trainyard::runtime::collective::internal
