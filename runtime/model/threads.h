// How many threads compute. OpenMP, by which oneDNN and OpenBLAS start theirs, keeps the number for
// each thread that computes, and a thread that never set it would take all cores.
#pragma once

namespace trainyard::runtime {

// Of setComputeThreads(); 1 before it was called.
int computeThreads();
// From now on the calling thread computes with so many.
void useComputeThreads();

}  // namespace trainyard::runtime
