// Collective operations on arrays in the memory of a device (a GPU).
//
// The device's library moves the data. It knows no deadline, and waits for ever for a rank that is
// gone or in another operation; so each operation begins with a meeting of all ranks over the
// transport (a barrier: ceil(log2 P) rounds without payload), which finds out who is missing or
// means something else before anything is begun on the device. While the device works, its errors,
// the transport and the clock are watched; whichever reports first, the device's operation is
// aborted. A rank that goes silent in the middle is found by a second meeting after the deadline.
//
// As for every Collective, an operation returns when its result is there: what writes the array
// must have ended before the call, on whichever stream.
#pragma once

#include <memory>

#include "runtime/collective/collective.h"
#include "runtime/collective/device.h"

namespace trainyard::runtime::collective {

// The same on all ranks.
struct DeviceOptions {
  Duration timeout = std::chrono::seconds(60);  // of one operation
  Duration join_timeout = std::chrono::seconds(60);
  // How long ranks have, after that, to say that they are alive.
  Duration grace = std::chrono::seconds(5);
};

// Forms the device's group, whose id rank 0 makes and gives the others over the transport. All
// ranks call it, and none has the result before all are in the device's group. `library` stays
// valid as long as the result. Errors as in collective.h, and the device's, with the name of the
// operation; the rank that an error of the device is due to is known only where the transport
// noticed it too. ABORTED: the device or its library is to blame, of this rank or another, and all
// ranks are there still (as far as this one has heard).
//
// totals() counts the meetings: what the device's library sends it does not say.
StatusOr<std::unique_ptr<Collective>> makeDeviceCollective(
    std::unique_ptr<transport::Transport> transport, DeviceLibrary& library,
    const DeviceOptions& options);

}  // namespace trainyard::runtime::collective
