// NCCL as the library of device_collective.h: arrays are in the memory of one GPU per rank.
//
// Communicators are of NCCL's non-blocking kind, so that no call waits for other ranks; they have a
// stream of their own. NCCL connects the ranks by itself, on the interface that it finds or
// NCCL_SOCKET_IFNAME names; these connections are not authenticated by the job's token.
#pragma once

#include <memory>
#include <string>

#include "runtime/collective/device.h"

namespace trainyard::runtime::nccl {

// For ranks of this process on GPU number `device`. NCCL refuses two ranks of one host on one GPU,
// unless their processes name different hosts in NCCL_HOSTID.
std::unique_ptr<collective::DeviceLibrary> makeNcclLibrary(int device);

// Of the library that was loaded, "2.21.5".
std::string ncclVersion();

}  // namespace trainyard::runtime::nccl
