#include "operator/kube/http_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "base/core/log.h"
#include "cpprest/http_client.h"
#include "fmt/format.h"
#include "openssl/err.h"
#include "operator/kube/http_exchange.h"
#include "operator/kube/http_tls.h"
#include "pplx/threadpool.h"

namespace trainyard::control {

namespace {

using internal::HttpExchange;
using internal::TlsMaterial;
using web::http::client::http_client;
using Socket = boost::asio::ip::tcp::socket;

// The library's threads only move bytes; they are started with the first transport.
constexpr std::size_t kThreads = 4;

void startThreads() {
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      crossplat::threadpool::initialize_with_threads(kThreads);
    } catch (const std::exception& e) {
      TY_WARN("the HTTP library runs already: {}", e.what());
    }
  });
}

// What a failure of the library's means. Its texts say where it happened, its codes are those of
// the system, or of OpenSSL in a handshake.
Status describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const web::http::http_exception& e) {
    const std::string what = e.what();
    if (what.find("SSL") != std::string::npos) {
      const auto code = static_cast<unsigned long>(e.error_code().value());
      const char* reason = ERR_reason_error_string(code);
      return absl::UnavailableError(
          fmt::format("{}: {}", what, reason ? reason : "connection lost"));
    }
    return absl::UnavailableError(
        e.error_code() ? fmt::format("{} ({})", what, e.error_code().message()) : what);
  } catch (const std::exception& e) {
    return absl::UnavailableError(e.what());
  } catch (...) {
    return absl::UnavailableError("the HTTP library failed");
  }
}

HttpResponse headOf(const web::http::http_response& response) {
  HttpResponse head;
  head.status = response.status_code();
  for (const auto& [name, value] : response.headers()) head.headers.emplace_back(name, value);
  return head;
}

// Options of a socket that will connect to an address of a known family. (With a name, the library
// opens the socket later, for each address that it tries; then only the limits find a connection
// whose other end has vanished.)
void prepareSocket(Socket& socket, const std::string& host, const HttpTransportOptions& options) {
  boost::system::error_code ignored;
  if (socket.is_open()) return;
  const auto literal = boost::asio::ip::make_address(host, ignored);
  if (ignored) return;
  socket.open(literal.is_v6() ? boost::asio::ip::tcp::v6() : boost::asio::ip::tcp::v4(), ignored);
  if (ignored) return;
  const auto set = [&socket](int level, int name, int value) {
    ::setsockopt(socket.native_handle(), level, name, &value, sizeof value);
  };
  const int idle = static_cast<int>(toSeconds(options.keepalive_idle));
  const int interval = static_cast<int>(toSeconds(options.keepalive_interval));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(idle, 1));
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(interval, 1));
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  // The same bound for what was sent and is not acknowledged.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, (std::max(idle, 1) + 3 * std::max(interval, 1)) * 1000);
}

class Transport : public HttpTransport {
 public:
  Transport(KubeConfig config, ServerAddress address, const Clock& clock,
            HttpTransportOptions options, TlsMaterial tls)
      : config_(std::move(config)),
        address_(std::move(address)),
        clock_(clock),
        options_(options),
        tls_(std::make_shared<TlsMaterial>(std::move(tls))),
        read_at_(clock.now()) {}

  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits& limits) override;
  Status stream(const HttpRequest& request, const HttpLimits& limits,
                const std::function<bool(const HttpResponse&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) override;

 private:
  // One at a time uses it, so it has one connection.
  struct Client {
    std::unique_ptr<http_client> http;
    std::shared_ptr<const TlsMaterial> tls;
  };

  Client take();
  void giveBack(Client client);
  void rereadLocked();
  std::unique_ptr<http_client> makeClient(std::shared_ptr<const TlsMaterial> tls) const;
  web::http::http_request toRequest(const HttpRequest& request,
                                    const std::shared_ptr<HttpExchange>& exchange) const;
  void start(Client& client, const HttpRequest& request,
             const std::shared_ptr<HttpExchange>& exchange, pplx::cancellation_token token) const;

  const KubeConfig config_;
  const ServerAddress address_;
  const Clock& clock_;
  const HttpTransportOptions options_;
  std::mutex mutex_;
  std::shared_ptr<const TlsMaterial> tls_;
  TimePoint read_at_;
  std::vector<Client> idle_;
};

void Transport::rereadLocked() {
  if (clock_.now() < read_at_ + options_.reread) return;
  read_at_ = clock_.now();
  auto tls = internal::readTls(config_);
  if (!tls.ok()) {
    // Perhaps half replaced; the next time shows.
    TY_WARN("{}: keeping the former certificates: {}", config_.server,
            std::string(tls.status().message()));
  } else if (*tls != *tls_) {
    tls_ = std::make_shared<TlsMaterial>(*std::move(tls));
    idle_.clear();
  }
}

Transport::Client Transport::take() {
  const std::lock_guard lock(mutex_);
  rereadLocked();
  if (idle_.empty()) return {makeClient(tls_), tls_};
  Client client = std::move(idle_.back());
  idle_.pop_back();
  return client;
}

void Transport::giveBack(Client client) {
  const std::lock_guard lock(mutex_);
  if (client.tls == tls_ && idle_.size() < static_cast<std::size_t>(options_.kept_connections)) {
    idle_.push_back(std::move(client));
  }
}

std::unique_ptr<http_client> Transport::makeClient(std::shared_ptr<const TlsMaterial> tls) const {
  web::http::client::http_client_config config;
  config.set_validate_certificates(true);
  config.set_max_redirects(0);
  config.set_timeout(std::chrono::hours(24));  // HttpExchange keeps the limits
  const std::string name =
      config_.tls_server_name.empty() ? address_.host : config_.tls_server_name;
  boost::system::error_code is_name;
  boost::asio::ip::make_address(name, is_name);
  config.set_tlsext_sni_enabled(static_cast<bool>(is_name));
  config.set_ssl_context_callback([tls = std::move(tls), name](boost::asio::ssl::context& context) {
    const Status status = internal::applyTls(context.native_handle(), *tls, name);
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  });
  config.set_nativehandle_options([address = address_, options = options_](void* handle) {
    Socket& socket = address.tls
                         ? static_cast<boost::asio::ssl::stream<Socket&>*>(handle)->next_layer()
                         : *static_cast<Socket*>(handle);
    prepareSocket(socket, address.host, options);
  });
  // No brackets around an IPv6 address: the library hands the host to the resolver and to the
  // check of the certificate as it stands here, and finds the port behind the last colon.
  const std::string url = fmt::format("{}://{}:{}{}", address_.tls ? "https" : "http",
                                      address_.host, address_.port, address_.path);
  return std::make_unique<http_client>(web::uri(url), config);
}

web::http::http_request Transport::toRequest(const HttpRequest& request,
                                             const std::shared_ptr<HttpExchange>& exchange) const {
  web::http::http_request result(request.method);
  result.set_request_uri(web::uri(request.target));
  if (!request.body.empty()) {
    result.set_body(std::vector<unsigned char>(request.body.begin(), request.body.end()));
  }
  for (const auto& [name, value] : request.headers) result.headers()[name] = value;
  // The library also takes this as the name that the certificate is for.
  if (!config_.tls_server_name.empty()) result.headers()["Host"] = config_.tls_server_name;
  result.set_response_stream(HttpExchange::makeSink(exchange).create_ostream());
  result.set_progress_handler(
      [exchange](web::http::message_direction::direction direction, utility::size64_t) {
        if (direction == web::http::message_direction::upload) exchange->onSent();
      });
  return result;
}

void Transport::start(Client& client, const HttpRequest& request,
                      const std::shared_ptr<HttpExchange>& exchange,
                      pplx::cancellation_token token) const {
  // Every task's failure is looked at: one that is not ends the process.
  const auto on_body = [exchange](const pplx::task<web::http::http_response>& task) {
    Status status;
    try {
      task.get();
    } catch (...) {
      status = describe(std::current_exception());
    }
    exchange->onDone(std::move(status));
  };
  const auto on_head = [exchange, on_body](const pplx::task<web::http::http_response>& task) {
    try {
      const web::http::http_response response = task.get();
      exchange->onHead(headOf(response));
      response.content_ready().then(on_body, pplx::cancellation_token::none());
    } catch (...) {
      exchange->onDone(describe(std::current_exception()));
    }
  };
  try {
    client.http->request(toRequest(request, exchange), token)
        .then(on_head, pplx::cancellation_token::none());
  } catch (...) {
    exchange->onDone(describe(std::current_exception()));
  }
}

Status Transport::stream(const HttpRequest& request, const HttpLimits& limits,
                         const std::function<bool(const HttpResponse&)>& on_head,
                         const std::function<bool(std::string_view)>& on_data) {
  Client client = take();
  pplx::cancellation_token_source cancel;
  const auto exchange = std::make_shared<HttpExchange>(clock_);
  start(client, request, exchange, cancel.get_token());
  const HttpExchange::Outcome outcome = exchange->consume(limits, on_head, on_data);
  if (outcome.complete) {
    giveBack(std::move(client));
  } else {
    cancel.cancel();  // closes the connection
  }
  return annotate(outcome.status, fmt::format("{} {}", request.method, config_.server));
}

StatusOr<HttpResponse> Transport::call(const HttpRequest& request, const HttpLimits& limits) {
  HttpResponse response;
  bool too_large = false;
  const Status status = stream(
      request, limits,
      [&](const HttpResponse& head) {
        response = head;
        return true;
      },
      [&](std::string_view data) {
        too_large = response.body.size() + data.size() > limits.max_body;
        if (!too_large) response.body += data;
        return !too_large;
      });
  TY_RETURN_IF_ERROR(status);
  if (too_large) {
    return markMaybeHappened(
        absl::ResourceExhaustedError(fmt::format("{} {}: the answer has more than {} bytes",
                                                 request.method, config_.server, limits.max_body)));
  }
  return response;
}

}  // namespace

StatusOr<std::unique_ptr<HttpTransport>> makeHttpTransport(const KubeConfig& config,
                                                           const Clock& clock,
                                                           HttpTransportOptions options) {
  TY_ASSIGN_OR_RETURN(ServerAddress address, parseServer(config.server));
  auto tls = internal::readTls(config);
  if (!tls.ok()) return annotate(tls.status(), config.server);
  startThreads();
  return std::make_unique<Transport>(config, std::move(address), clock, options, *std::move(tls));
}

}  // namespace trainyard::control
