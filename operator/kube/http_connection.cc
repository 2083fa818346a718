#include "operator/kube/http_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <limits>

#include "absl/strings/escaping.h"
#include "boost/asio/post.hpp"
#include "operator/kube/http_tls.h"

namespace trainyard::control::internal {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr std::size_t kPiece = std::size_t{16} << 10;  // a record of TLS brings no more
constexpr std::uint32_t kLongestHead = 256 << 10;

// Options of a socket that is about to connect.
void setProbes(Tcp::socket& socket, const HttpTransportOptions& options) {
  const auto set = [&socket](int level, int name, int value) {
    ::setsockopt(socket.native_handle(), level, name, &value, sizeof value);
  };
  const int idle = std::max(static_cast<int>(toSeconds(options.keepalive_idle)), 1);
  const int interval = std::max(static_cast<int>(toSeconds(options.keepalive_interval)), 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle);
  set(IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // The same bound for what was sent and is not acknowledged.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, (idle + 3 * interval) * 1000);
}

Status failed(const error_code& code) {
  if (code == asio::error::eof || code == http::error::end_of_stream ||
      code == http::error::partial_message || code == asio::ssl::error::stream_truncated) {
    return absl::UnavailableError("the connection was closed");
  }
  return absl::UnavailableError(code.message());
}

}  // namespace

void Connection::rest() {
  piece_ = {};
  buffer_.shrink_to_fit();
}

bool Connection::isQuiet() {
  char byte = 0;
  return buffer_.size() == 0 && (!tls_ || SSL_has_pending(tls_->native()) == 0) &&
         ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK);
}

template <typename Begin>
Status Connection::wait(Deadlines& deadlines, error_code& code, const Begin& begin) {
  if (auto over = deadlines.reached()) return *std::move(over);
  // Shared with the operation, which may outlive this wait: see below.
  const auto result = std::make_shared<std::optional<error_code>>();
  begin([result](const error_code& ended, const auto&...) { *result = ended; });
  const std::stop_callback wake(deadlines.stop(), [this] { asio::post(io_, [] {}); });
  while (!*result) {
    io_.restart();
    io_.run_one_for(std::max(deadlines.left(), Duration::zero()));
    auto over = *result ? std::nullopt : deadlines.reached();
    if (!over) continue;
    // Who looks up a name cannot be hurried: abandon() waits for it.
    if (resolving_) return *std::move(over);
    error_code ignored;
    socket_.close(ignored);
    while (!*result) {
      io_.restart();
      io_.run_one();
    }
    return *std::move(over);
  }
  code = **result;
  deadlines.heard();
  return absl::OkStatus();
}

StatusOr<Tcp::resolver::results_type> Connection::resolve(const std::string& host, int port,
                                                          Deadlines& deadlines) {
  error_code code;
  const auto literal = asio::ip::make_address(host, code);
  const std::string service = std::to_string(port);
  if (!code) {
    const Tcp::endpoint endpoint(literal, static_cast<unsigned short>(port));
    return Tcp::resolver::results_type::create(endpoint, host, service);
  }
  const auto found = std::make_shared<Tcp::resolver::results_type>();
  resolving_ = true;
  TY_RETURN_IF_ERROR(wait(deadlines, code, [&](auto handler) {
    resolver_.async_resolve(host, service,
                            [found, handler](const error_code& result, const auto& results) {
                              *found = results;
                              handler(result);
                            });
  }));
  resolving_ = false;
  if (code) return failed(code);
  return *found;
}

Status Connection::connect(const std::string& host, int port, const HttpTransportOptions& options,
                           Deadlines& deadlines) {
  TY_ASSIGN_OR_RETURN(const auto found, resolve(host, port, deadlines));
  error_code code = asio::error::host_not_found;
  for (const auto& entry : found) {
    error_code ignored;
    socket_.close(ignored);
    if (socket_.open(entry.endpoint().protocol(), code)) continue;
    setProbes(socket_, options);
    TY_RETURN_IF_ERROR(wait(
        deadlines, code, [&](auto handler) { socket_.async_connect(entry.endpoint(), handler); }));
    if (!code) return absl::OkStatus();
  }
  return failed(code);
}

Status Connection::shakeHands(const std::string& name, Deadlines& deadlines) {
  if (!isAddress(name)) SSL_set_tlsext_host_name(tls_->native(), name.c_str());
  error_code code;
  TY_RETURN_IF_ERROR(
      wait(deadlines, code, [&](auto handler) { tls_->shakeHands(std::move(handler)); }));
  if (!code) return absl::OkStatus();
  const long verdict = SSL_get_verify_result(tls_->native());
  if (verdict == X509_V_OK) return failed(code);
  return absl::UnavailableError(
      fmt::format("{}: {}", code.message(), X509_verify_cert_error_string(verdict)));
}

Status Connection::open(const ServerAddress& address, const std::string& server_name,
                        const std::optional<ProxyAddress>& proxy,
                        const HttpTransportOptions& options, Deadlines& deadlines) {
  TY_RETURN_IF_ERROR(connect(proxy ? proxy->host : address.host, proxy ? proxy->port : address.port,
                             options, deadlines));
  if (proxy) TY_RETURN_IF_ERROR(passProxy(*proxy, address, deadlines));
  return tls_ ? shakeHands(server_name, deadlines) : absl::OkStatus();
}

Status Connection::passProxy(const ProxyAddress& proxy, const ServerAddress& address,
                             Deadlines& deadlines) {
  const std::string target = fmt::format("{}:{}", bracketed(address.host), address.port);
  http::request<http::empty_body> request(http::verb::connect, target, 11);
  request.set(http::field::host, target);
  if (!proxy.user.empty()) {
    const std::string who = proxy.user + ":" + proxy.password;
    request.set(http::field::proxy_authorization, "Basic " + absl::Base64Escape(who));
  }
  error_code code;
  TY_RETURN_IF_ERROR(
      wait(deadlines, code, [&](auto handler) { http::async_write(socket_, request, handler); }));
  if (code) return failed(code);
  http::response_parser<http::empty_body> parser;
  parser.skip(true);
  TY_RETURN_IF_ERROR(wait(deadlines, code, [&](auto handler) {
    http::async_read_header(socket_, buffer_, parser, handler);
  }));
  if (code) return failed(code);
  const int status = static_cast<int>(parser.get().result_int());
  if (status / 100 == 2) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("the proxy answers {}", status));
}

Status Connection::send(const Request& request, Deadlines& deadlines) {
  sent_ = false;
  error_code code;
  TY_RETURN_IF_ERROR(onStream([&](auto& stream) {
    return wait(deadlines, code,
                [&](auto handler) { http::async_write(stream, request, handler); });
  }));
  if (code) return failed(code);
  sent_ = true;
  return absl::OkStatus();
}

Status Connection::readHead(Parser& parser, Deadlines& deadlines) {
  parser.header_limit(kLongestHead);
  parser.body_limit((std::numeric_limits<std::uint64_t>::max)());
  error_code code;
  TY_RETURN_IF_ERROR(onStream([&](auto& stream) {
    return wait(deadlines, code,
                [&](auto handler) { http::async_read_header(stream, buffer_, parser, handler); });
  }));
  return code ? failed(code) : absl::OkStatus();
}

StatusOr<std::string_view> Connection::readPiece(Parser& parser, Deadlines& deadlines) {
  piece_.resize(kPiece);
  while (!parser.is_done()) {
    parser.get().body().data = piece_.data();
    parser.get().body().size = piece_.size();
    error_code code;
    TY_RETURN_IF_ERROR(onStream([&](auto& stream) {
      return wait(deadlines, code,
                  [&](auto handler) { http::async_read_some(stream, buffer_, parser, handler); });
    }));
    if (code && code != http::error::need_buffer) return failed(code);
    const std::size_t got = piece_.size() - parser.get().body().size;
    if (got > 0) return std::string_view(piece_.data(), got);
  }
  return std::string_view();
}

}  // namespace trainyard::control::internal
