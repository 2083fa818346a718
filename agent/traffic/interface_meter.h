// Bytes of the network interface of a task that has an address of its own (a pod): what is known
// where the kernel does not tell of connections.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "agent/traffic/wire_bytes.h"

namespace trainyard::agent {

// From text as /proc/net/dev has it: the counters of the one interface beside the loopback, with
// headers of all layers and whatever else the task talks. Nothing where there are none or several:
// such a network namespace is a machine's, not a task's.
std::optional<WireBytes> bytesOfOnlyInterface(std::string_view text);

// Thread-safe.
class InterfaceMeter {
 public:
  explicit InterfaceMeter(std::filesystem::path file = "/proc/net/dev");

  // Since the meter was made. Nothing where bytesOfOnlyInterface() has nothing.
  std::optional<WireBytes> read() const;

 private:
  std::filesystem::path file_;
  std::optional<WireBytes> first_;
};

}  // namespace trainyard::agent
