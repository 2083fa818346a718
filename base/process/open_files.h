// How many files and connections this process may have open.
#pragma once

#include <cstdint>

namespace trainyard {

// The soft limit (RLIMIT_NOFILE) as it is; 0 where it cannot be read.
std::uint64_t openFilesLimit();

// Raises it to the hard limit, which takes no right, and returns what it is then. It is low by
// default (1,024) for the sake of select(), which cannot be told of higher numbers: not for
// programs that run programs of users, who inherit it.
std::uint64_t raiseOpenFilesLimit();

}  // namespace trainyard
