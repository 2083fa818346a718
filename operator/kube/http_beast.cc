// The HttpTransport by Boost.Beast. Each connection has an io_context of its own, which the thread
// of the call runs: nothing is handed from thread to thread, and a reader that takes its time holds
// the server back by not reading.
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "operator/kube/http_calls.h"
#include "operator/kube/http_connection.h"

namespace trainyard::control {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using internal::Connection;
using internal::Deadlines;
using internal::TlsMaterial;

// Ends connections that cannot end at once. Never ends itself: the process does not wait for them.
class Undertaker {
 public:
  void bury(std::unique_ptr<Connection> connection) {
    const std::lock_guard lock(mutex_);
    std::erase_if(graves_, [](Grave& grave) { return grave.over->load(); });
    auto over = std::make_shared<std::atomic<bool>>(false);
    graves_.push_back({over, std::jthread([over, kept = std::move(connection)]() mutable {
                         kept.reset();
                         *over = true;
                       })});
  }

 private:
  struct Grave {
    std::shared_ptr<std::atomic<bool>> over;
    std::jthread thread;
  };
  std::mutex mutex_;
  std::vector<Grave> graves_;
};

void abandon(std::unique_ptr<Connection> connection) {
  static Undertaker& undertaker = *std::make_unique<Undertaker>().release();
  if (connection->resolving()) undertaker.bury(std::move(connection));
}

// Connections that nobody uses, all made with the same certificates. Thread-safe.
class ConnectionPool {
 public:
  explicit ConnectionPool(int kept) : kept_(static_cast<std::size_t>(kept)) {}

  // One that was used before, or null.
  std::unique_ptr<Connection> take(const std::shared_ptr<asio::ssl::context>& context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(idle_, [&](const auto& one) { return one->context() != context; });
    while (!idle_.empty()) {
      std::unique_ptr<Connection> last = std::move(idle_.back());
      idle_.pop_back();
      if (last->isQuiet()) return last;
    }
    return nullptr;
  }
  void giveBack(std::unique_ptr<Connection> connection) {
    connection->rest();
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kept_) idle_.push_back(std::move(connection));
  }

 private:
  const std::size_t kept_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

HttpResponse headOf(const Connection::Parser::value_type& response) {
  HttpResponse head;
  head.status = static_cast<int>(response.result_int());
  for (const auto& field : response) {
    head.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  return head;
}

// What hears of an answer.
struct Reader {
  const std::function<bool(const HttpResponse&)>& on_head;
  const std::function<bool(std::string_view)>& on_data;
};

// How an exchange of a request and its answer ended.
struct Ended {
  Status status;
  bool complete = false;  // the connection can be used again
  bool answered = false;  // something of the answer came
};

Ended exchange(Connection& connection, const Connection::Request& request, Deadlines& deadlines,
               const Reader& reader) {
  if (const Status sent = connection.send(request, deadlines); !sent.ok()) return {.status = sent};
  Connection::Parser parser;
  if (const Status read = connection.readHead(parser, deadlines); !read.ok())
    return {.status = read};
  Ended ended{.status = absl::OkStatus(), .complete = false, .answered = true};
  if (!reader.on_head(headOf(parser.get()))) return ended;
  for (;;) {
    const StatusOr<std::string_view> piece = connection.readPiece(parser, deadlines);
    if (!piece.ok()) {
      ended.status = piece.status();
      return ended;
    }
    if (piece->empty()) break;
    if (!reader.on_data(*piece)) return ended;
    deadlines.heard();
  }
  ended.complete = parser.keep_alive();
  return ended;
}

class BeastTransport : public internal::CallingTransport {
 public:
  using CallingTransport::CallingTransport;

  Status stream(const HttpRequest& request, const HttpLimits& limits,
                const std::function<bool(const HttpResponse&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) override;

 private:
  StatusOr<std::shared_ptr<asio::ssl::context>> contextOf(
      const std::shared_ptr<const TlsMaterial>& tls);
  Connection::Request toRequest(const HttpRequest& request) const;

  ConnectionPool pool_{options_.connections};
  std::mutex mutex_;
  std::shared_ptr<const TlsMaterial> made_of_;  // what context_ is
  std::shared_ptr<asio::ssl::context> context_;
};

// One for all connections as long as the certificates are the same. Null without TLS.
StatusOr<std::shared_ptr<asio::ssl::context>> BeastTransport::contextOf(
    const std::shared_ptr<const TlsMaterial>& tls) {
  if (!address_.tls) return nullptr;
  const std::lock_guard lock(mutex_);
  if (context_ && made_of_ == tls) return context_;
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  context->set_verify_mode(asio::ssl::verify_peer);
  error_code ignored;
  if (tls->ca.empty()) context->set_default_verify_paths(ignored);
  TY_RETURN_IF_ERROR(internal::applyTls(context->native_handle(), *tls, serverName()));
  context_ = std::move(context);
  made_of_ = tls;
  return context_;
}

Connection::Request BeastTransport::toRequest(const HttpRequest& request) const {
  Connection::Request result;
  result.version(11);
  result.method_string(request.method);
  result.target(address_.path + request.target);
  for (const auto& [name, value] : request.headers) result.set(name, value);
  const std::string host = config_.tls_server_name.empty()
                               ? fmt::format("{}:{}", bracketed(address_.host), address_.port)
                               : config_.tls_server_name;
  result.set(http::field::host, host);
  result.body() = request.body;
  if (!request.body.empty() || (request.method != "GET" && request.method != "HEAD"))
    result.content_length(request.body.size());
  return result;
}

Status BeastTransport::stream(const HttpRequest& request, const HttpLimits& limits,
                              const std::function<bool(const HttpResponse&)>& on_head,
                              const std::function<bool(std::string_view)>& on_data) {
  TY_ASSIGN_OR_RETURN(const auto tls, tls_.current(limits.stop));
  TY_ASSIGN_OR_RETURN(const auto context, contextOf(tls));
  const std::string what = fmt::format("{} {}", request.method, config_.server);
  const auto wire = toRequest(request);
  const Reader reader{on_head, on_data};
  Deadlines deadlines(limits, clock_);
  bool maybe = false;
  for (;;) {
    std::unique_ptr<Connection> connection = pool_.take(context);
    const bool used_before = connection != nullptr;
    Status opened;
    if (!used_before) {
      connection = std::make_unique<Connection>(context);
      opened = connection->open(address_, serverName(), config_.proxy, options_, deadlines);
    }
    Ended ended{.status = opened};
    if (opened.ok()) ended = exchange(*connection, wire, deadlines, reader);
    maybe = maybe || connection->sent();
    // The server may have closed it while the request was on its way. Others are not repeated: they
    // may have been carried out.
    const bool again = used_before && absl::IsUnavailable(ended.status) && !ended.answered &&
                       (request.method == "GET" || !connection->sent());
    if (ended.complete) {
      pool_.giveBack(std::move(connection));
    } else {
      abandon(std::move(connection));
    }
    if (again) continue;
    if (maybe && !ended.status.ok()) ended.status = markMaybeHappened(std::move(ended.status));
    return annotate(ended.status, what);
  }
}

}  // namespace

std::unique_ptr<HttpTransport> boostBeast(const KubeConfig& config, ServerAddress address,
                                          const Clock& clock, const HttpTransportOptions& options,
                                          std::shared_ptr<const internal::TlsMaterial> read) {
  return std::make_unique<BeastTransport>(config, std::move(address), clock, options,
                                          std::move(read));
}

}  // namespace trainyard::control
