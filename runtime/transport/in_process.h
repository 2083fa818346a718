// Ranks that are threads of one process: the reference for the other transports, and what the
// collective operations' tests run on.
#pragma once

#include <memory>

#include "runtime/transport/transport.h"

namespace trainyard::runtime::transport {

// What the ranks of one group share. Thread-safe; lives as long as one of its transports.
class InProcessGroup {
 public:
  static std::shared_ptr<InProcessGroup> create(int size);
  virtual ~InProcessGroup() = default;
  // Once for each rank. Destroying a transport is leaving: the others lose the rank.
  virtual std::unique_ptr<Transport> join(int rank) = 0;
};

}  // namespace trainyard::runtime::transport
