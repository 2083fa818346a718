// How this process's heap treats memory that is freed.
#pragma once

namespace trainyard {

// Once, from main: freed blocks of any size stay in the heap. gRPC reads every message into fresh
// memory, and training takes its gradients anew each step; without this glibc gives large blocks
// back to the kernel each time, and the page faults halve the throughput.
void keepFreedMemory();

}  // namespace trainyard
