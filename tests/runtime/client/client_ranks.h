// Ranks of a program for tests of the C interface: threads of this process, which meet on the
// loopback.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/client/trainyard.h"

namespace trainyard::testing {

struct Ranks {
  int size = 2;
  bool share_memory = true;
  double seconds = 20;  // of an operation
  int wire = TY_NO_TYPE;
};

// What a call said.
struct Said {
  ty_code code = TY_OK;
  std::string error;
  int rank = -1;
};
// Of this thread's last call, which returned `code`.
Said said(ty_code code);

// Every rank's `act` on a thread of its own, with its group, which it leaves afterwards.
void runRanks(const Ranks& ranks, const std::function<void(ty_group* group, int rank)>& act);

// Joins a group whose ranks meet at `port`; null with a failed expectation where it cannot.
ty_group* joinAt(int port, int rank, const Ranks& ranks);
// That nobody listens at now.
int freePort();

ty_array arrayOf(std::vector<float>& x, const char* name = nullptr);

}  // namespace trainyard::testing
