#include "runtime/storage/s3/http.h"

#include <signal.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "fmt/format.h"
#include "httplib.h"
#include "runtime/storage/s3/tunnel.h"

namespace trainyard::runtime::s3 {
namespace {

constexpr std::chrono::seconds kConnect{5};
constexpr std::chrono::seconds kSilent{20};

// Writing to a connection that the store has closed raises SIGPIPE, which the library lets happen.
class PipeSignalHeld {
 public:
  PipeSignalHeld() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    raised_before_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &former_);
  }
  PipeSignalHeld(const PipeSignalHeld&) = delete;
  PipeSignalHeld& operator=(const PipeSignalHeld&) = delete;
  ~PipeSignalHeld() {
    constexpr std::timespec kAtOnce{};
    if (!raised_before_) sigtimedwait(&pipe_, nullptr, &kAtOnce);
    pthread_sigmask(SIG_SETMASK, &former_, nullptr);
  }

 private:
  sigset_t pipe_{}, former_{};
  bool raised_before_ = false;
};

// The library's own way through a proxy waits for itself for ever where the proxy refuses (0.11):
// it is given the connection when that is made.
class TunnelledClient : public httplib::SSLClient {
 public:
  TunnelledClient(const std::string& host, int port, const ProxyAddress& proxy)
      : SSLClient(host, port), proxy_(proxy) {}
  // Why there was no connection the last time, where the proxy said so.
  const Status& refused() const { return refused_; }

 private:
  bool create_and_connect_socket(Socket& socket, httplib::Error& error) override {
    set_proxy(proxy_.host, proxy_.port);
    const bool connected = is_valid() && ClientImpl::create_and_connect_socket(socket, error);
    set_proxy("", -1);
    refused_ = !connected
                   ? absl::OkStatus()
                   : openTunnel(socket.sock, proxy_, fmt::format("{}:{}", bracketed(host_), port_),
                                systemClock().now() + kConnect);
    if (refused_.ok()) return connected;
    close_socket(socket);
    error = httplib::Error::Connection;
    return false;
  }

  const ProxyAddress proxy_;
  Status refused_;
};

// To one server, directly or by a proxy.
struct Connection {
  std::unique_ptr<httplib::ClientImpl> client;
  const TunnelledClient* tunnel = nullptr;  // the same, where it is one
};

class HttplibHttp : public Http {
 public:
  HttplibHttp(std::string ca_file, ProxyRules proxies)
      : ca_file_(std::move(ca_file)), proxies_(std::move(proxies)) {}

  StatusOr<Response> send(const Request& request, std::size_t max_body) override {
    Response response;
    bool too_large = false;
    httplib::Request wanted = prepare(request);
    wanted.content_receiver = [&](const char* data, std::size_t size, std::uint64_t,
                                  std::uint64_t) {
      too_large = response.body.size() + size > max_body;
      if (!too_large) response.body.append(data, size);
      return !too_large;
    };
    Connection connection = take(request.scheme_and_host);
    const PipeSignalHeld held;
    const httplib::Result result = connection.client->send(wanted);
    if (too_large)
      return absl::ResourceExhaustedError(fmt::format("answers more than {} bytes", max_body));
    if (!result && connection.tunnel != nullptr && !connection.tunnel->refused().ok())
      return connection.tunnel->refused();
    if (!result) {
      return absl::UnavailableError(
          fmt::format("{}: {}", request.scheme_and_host, httplib::to_string(result.error())));
    }
    giveBack(request.scheme_and_host, std::move(connection));
    response.status = result->status;
    for (const auto& [name, value] : result->headers) {
      std::string lower = name;
      std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
      response.headers[lower] = value;
    }
    return response;
  }

 private:
  static httplib::Request prepare(const Request& request) {
    httplib::Request wanted;
    wanted.method = request.method;
    const std::string query = queryText(request);
    wanted.path = request.path + (query.empty() ? "" : "?" + query);
    for (const auto& [name, value] : request.headers) wanted.set_header(name, value);
    wanted.set_header("Host", request.host);
    if (request.method == "PUT" || request.method == "POST") {
      if (!request.headers.contains("content-type"))
        wanted.set_header("Content-Type", "application/octet-stream");
      wanted.body.assign(reinterpret_cast<const char*>(request.body.data()), request.body.size());
    }
    return wanted;
  }

  Connection take(const std::string& scheme_and_host) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<Connection>& idle = idle_[scheme_and_host];
      if (!idle.empty()) {
        Connection last = std::move(idle.back());
        idle.pop_back();
        return last;
      }
    }
    Connection made = connectionTo(scheme_and_host);
    httplib::ClientImpl& client = *made.client;
    client.set_connection_timeout(kConnect);
    client.set_read_timeout(kSilent);
    client.set_write_timeout(kSilent);
    client.set_keep_alive(true);
    client.set_tcp_nodelay(true);
    client.set_url_encode(false);  // it is, and the signature is of this very path
    client.set_decompress(false);
    if (!ca_file_.empty()) client.set_ca_cert_path(ca_file_);
    return made;
  }
  // Where there is no server of that name no connection to it is made later.
  Connection connectionTo(std::string_view scheme_and_host) const {
    constexpr std::string_view kSecure = "https://";
    const bool tls = scheme_and_host.starts_with(kSecure);
    scheme_and_host.remove_prefix(tls ? kSecure.size() : kSecure.size() - 1);
    std::string host;
    int port = tls ? 443 : 80;
    readAuthority(scheme_and_host, &host, &port);
    const ProxyAddress* const proxy = proxyFor(proxies_, tls, host, port);
    if (tls && proxy != nullptr) {
      auto client = std::make_unique<TunnelledClient>(host, port, *proxy);
      const TunnelledClient* const tunnel = client.get();
      return {std::move(client), tunnel};
    }
    if (tls) return {std::make_unique<httplib::SSLClient>(host, port)};
    auto client = std::make_unique<httplib::ClientImpl>(host, port);
    if (proxy != nullptr) client->set_proxy(proxy->host, proxy->port);
    if (proxy != nullptr && !proxy->user.empty())
      client->set_proxy_basic_auth(proxy->user, proxy->password);
    return {std::move(client)};
  }
  void giveBack(const std::string& scheme_and_host, Connection connection) {
    const std::lock_guard lock(mutex_);
    idle_[scheme_and_host].push_back(std::move(connection));
  }

  const std::string ca_file_;
  const ProxyRules proxies_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Connection>> idle_;
};

}  // namespace

std::unique_ptr<Http> makeHttp(const std::string& ca_file, const ProxyRules& proxies) {
  return std::make_unique<HttplibHttp>(ca_file, proxies);
}

}  // namespace trainyard::runtime::s3
