// LibTorch, as whoever may be linked without it asks for it.
#pragma once

#include <string>

namespace trainyard::runtime {

// Empty: this program is linked without it.
std::string torchVersion();
// Threads of LibTorch in every thread that computes.
void setTorchThreads(int n);

}  // namespace trainyard::runtime
