// Workers of several processes: the operator knows workers, the coordinator and all that train know
// each process as a member of its own.
#pragma once

#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime {

// The operator's membership with each worker as its processes. They are numbered through the
// workers: process p of worker w has the index w x processes + p, and the life, the host and the
// port of its worker, at which the first one listens. Parameter servers stay as they are.
v1::Membership memberProcesses(const v1::Membership& membership, int processes);

}  // namespace trainyard::runtime
