// The HttpTransport by cpprestsdk, whose headers only this file and http_exchange.* see.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "base/core/log.h"
#include "cpprest/http_client.h"
#include "fmt/format.h"
#include "openssl/err.h"
#include "operator/kube/http_calls.h"
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

// A failure's code as text. The library keeps only the number of a code, which is the system's,
// OpenSSL's (large ones), or asio's for an end that came too early (the first two).
std::string reasonOf(const web::http::http_exception& failure) {
  const int code = failure.error_code().value();
  if (code == 0) return "";
  if (code == 1 || code == 2) return ": the connection was closed";
  const char* tls =
      code > 4096 ? ERR_reason_error_string(static_cast<unsigned long>(code)) : nullptr;
  return fmt::format(": {}", tls ? std::string(tls) : std::generic_category().message(code));
}

Status describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const web::http::http_exception& e) {
    return absl::UnavailableError(e.what() + reasonOf(e));
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

web::web_proxy proxyOf(const ProxyAddress& address) {
  web::uri_builder builder;
  builder.set_scheme("http").set_host(address.host).set_port(address.port);
  web::web_proxy proxy(builder.to_uri());
  if (!address.user.empty()) {
    proxy.set_credentials({address.user, address.password});
  }
  return proxy;
}

// One at a time uses it, so it has one connection.
struct Client {
  std::unique_ptr<http_client> http;
  std::shared_ptr<const TlsMaterial> tls;
};

class ClientPool;

// Held by who waits for an answer and by the library's request. The library keeps a connection for
// the next request only when it lets go of this one, a moment after its end.
struct Loan {
  explicit Loan(std::shared_ptr<ClientPool> to) : pool(std::move(to)) {}
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  const std::shared_ptr<ClientPool> pool;
  Client client;
  bool comes_back = false;  // by expect()
};

// Clients with an open connection that nobody uses. Thread-safe.
class ClientPool : public std::enable_shared_from_this<ClientPool> {
 public:
  explicit ClientPool(int kept) : kept_(static_cast<std::size_t>(kept)) {}

  // With a client that has these certificates, or without one.
  std::shared_ptr<Loan> take(std::shared_ptr<const TlsMaterial> tls) {
    auto loan = std::make_shared<Loan>(shared_from_this());
    std::unique_lock lock(mutex_);
    // Less than a new connection takes.
    changed_.wait_for(lock, std::chrono::milliseconds(20),
                      [this] { return !idle_.empty() || coming_ == 0; });
    std::erase_if(idle_, [&tls](const Client& client) { return client.tls != tls; });
    if (idle_.empty()) {
      loan->client.tls = std::move(tls);
    } else {
      loan->client = std::move(idle_.back());
      idle_.pop_back();
    }
    return loan;
  }

  // The answer was complete: the client is kept when the library has let go of it.
  void expect(Loan& loan) {
    const std::lock_guard lock(mutex_);
    loan.comes_back = true;
    ++coming_;
  }

  void giveBack(Client client) {
    const std::lock_guard lock(mutex_);
    --coming_;
    if (idle_.size() < kept_) idle_.push_back(std::move(client));
    changed_.notify_all();
  }

 private:
  const std::size_t kept_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Client> idle_;
  int coming_ = 0;
};

Loan::~Loan() {
  if (comes_back) pool->giveBack(std::move(client));
}

class Transport : public internal::CallingTransport {
 public:
  using CallingTransport::CallingTransport;

  Status stream(const HttpRequest& request, const HttpLimits& limits,
                const std::function<bool(const HttpResponse&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) override;

 private:
  std::unique_ptr<http_client> makeClient(std::shared_ptr<const TlsMaterial> tls) const;
  web::http::http_request toRequest(const HttpRequest& request, const std::shared_ptr<Loan>& loan,
                                    const std::shared_ptr<HttpExchange>& exchange) const;
  void start(const std::shared_ptr<Loan>& loan, const HttpRequest& request,
             const std::shared_ptr<HttpExchange>& exchange, pplx::cancellation_token token) const;

  const std::shared_ptr<ClientPool> pool_ = std::make_shared<ClientPool>(options_.connections);
};

std::unique_ptr<http_client> Transport::makeClient(std::shared_ptr<const TlsMaterial> tls) const {
  web::http::client::http_client_config config;
  config.set_validate_certificates(true);
  config.set_max_redirects(0);
  config.set_timeout(std::chrono::hours(24));  // HttpExchange keeps the limits
  const std::string name = serverName();
  boost::system::error_code is_name;
  boost::asio::ip::make_address(name, is_name);
  config.set_tlsext_sni_enabled(static_cast<bool>(is_name));
  config.set_ssl_context_callback([tls = std::move(tls), name](boost::asio::ssl::context& context) {
    const Status status = internal::applyTls(context.native_handle(), *tls, name);
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  });
  if (config_.proxy) config.set_proxy(proxyOf(*config_.proxy));
  const std::string first = config_.proxy ? config_.proxy->host : address_.host;
  config.set_nativehandle_options([tls = address_.tls, first, options = options_](void* handle) {
    Socket& socket = tls ? static_cast<boost::asio::ssl::stream<Socket&>*>(handle)->next_layer()
                         : *static_cast<Socket*>(handle);
    prepareSocket(socket, first, options);
  });
  // No brackets around an IPv6 address: the library hands the host to the resolver and to the
  // check of the certificate as it stands here, and finds the port behind the last colon.
  const std::string url = fmt::format("{}://{}:{}{}", address_.tls ? "https" : "http",
                                      address_.host, address_.port, address_.path);
  return std::make_unique<http_client>(web::uri(url), config);
}

web::http::http_request Transport::toRequest(const HttpRequest& request,
                                             const std::shared_ptr<Loan>& loan,
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
      [exchange, loan](web::http::message_direction::direction direction, utility::size64_t) {
        if (direction == web::http::message_direction::upload) exchange->onSent();
      });
  return result;
}

void Transport::start(const std::shared_ptr<Loan>& loan, const HttpRequest& request,
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
    loan->client.http->request(toRequest(request, loan, exchange), token)
        .then(on_head, pplx::cancellation_token::none());
  } catch (...) {
    exchange->onDone(describe(std::current_exception()));
  }
}

Status Transport::stream(const HttpRequest& request, const HttpLimits& limits,
                         const std::function<bool(const HttpResponse&)>& on_head,
                         const std::function<bool(std::string_view)>& on_data) {
  TY_ASSIGN_OR_RETURN(auto tls, tls_.current(limits.stop));
  auto loan = pool_->take(std::move(tls));
  if (!loan->client.http) loan->client.http = makeClient(loan->client.tls);
  pplx::cancellation_token_source cancel;
  const auto exchange = std::make_shared<HttpExchange>(clock_);
  start(loan, request, exchange, cancel.get_token());
  const HttpExchange::Outcome outcome = exchange->consume(limits, on_head, on_data);
  if (outcome.complete) {
    pool_->expect(*loan);
  } else {
    cancel.cancel();  // closes the connection
  }
  return annotate(outcome.status, fmt::format("{} {}", request.method, config_.server));
}

}  // namespace

std::unique_ptr<HttpTransport> cpprestsdk(const KubeConfig& config, ServerAddress address,
                                          const Clock& clock, const HttpTransportOptions& options,
                                          std::shared_ptr<const internal::TlsMaterial> read) {
  startThreads();
  return std::make_unique<Transport>(config, std::move(address), clock, options, std::move(read));
}

}  // namespace trainyard::control
