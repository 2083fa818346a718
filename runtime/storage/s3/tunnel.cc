#include "runtime/storage/s3/tunnel.h"

#include <sys/socket.h>

#include "absl/strings/escaping.h"
#include "base/core/strings.h"
#include "base/process/poll.h"
#include "fmt/format.h"

namespace trainyard::runtime::s3 {
namespace {

constexpr std::size_t kLongestHead = 16 << 10;

// Byte by byte: what comes behind it is not ours.
StatusOr<std::string> readHead(int fd, TimePoint deadline) {
  std::string head;
  while (!head.ends_with("\r\n\r\n")) {
    char byte = 0;
    if (!waitReadable(fd, deadline)) return absl::UnavailableError("does not answer");
    if (::recv(fd, &byte, 1, 0) != 1) return absl::UnavailableError("closes the connection");
    head += byte;
    if (head.size() > kLongestHead) return absl::UnavailableError("answers without an end");
  }
  return head;
}

std::string requestFor(const ProxyAddress& proxy, const std::string& target) {
  std::string text = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n", target);
  if (!proxy.user.empty()) {
    text += fmt::format("Proxy-Authorization: Basic {}\r\n",
                        absl::Base64Escape(proxy.user + ":" + proxy.password));
  }
  return text + "\r\n";
}

Status ask(int fd, const ProxyAddress& proxy, const std::string& target, TimePoint deadline) {
  const std::string request = requestFor(proxy, target);
  if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    return absl::UnavailableError("closes the connection");
  TY_ASSIGN_OR_RETURN(const std::string head, readHead(fd, deadline));
  // "HTTP/1.1 200 Connection established"
  const std::string_view code = splitFirst(splitFirst(head, ' ').second, ' ').first;
  if (code.size() == 3 && code[0] == '2') return absl::OkStatus();
  const std::string words = fmt::format("answers {}", splitFirst(head, '\r').first);
  const bool refuses = code == "401" || code == "403" || code == "407";
  return refuses ? absl::PermissionDeniedError(words) : absl::UnavailableError(words);
}

}  // namespace

Status openTunnel(int fd, const ProxyAddress& proxy, const std::string& target,
                  TimePoint deadline) {
  return annotate(ask(fd, proxy, target, deadline),
                  fmt::format("the proxy {}:{}", proxy.host, proxy.port));
}

}  // namespace trainyard::runtime::s3
