#include "runtime/lanes/pace.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace trainyard::runtime::lanes {

std::optional<Pace> paceOf(int fd) {
  tcp_info info = {};  // a kernel may know fewer fields
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  constexpr std::uint32_t kNever = ~0U;
  if (info.tcpi_delivery_rate == 0 || info.tcpi_min_rtt == 0 || info.tcpi_min_rtt == kNever)
    return std::nullopt;
  return Pace{static_cast<double>(info.tcpi_delivery_rate),
              std::chrono::microseconds(info.tcpi_min_rtt)};
}

}  // namespace trainyard::runtime::lanes
