// One connection of Boost.Beast's, which the thread of a call runs.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http.hpp"
#include "fmt/format.h"
#include "operator/kube/http_tls_stream.h"
#include "operator/kube/http_transport.h"

namespace trainyard::control::internal {

// From when a call began until when it may last.
class Deadlines {
 public:
  Deadlines(const HttpLimits& limits, const Clock& clock)
      : limits_(limits), clock_(clock), began_(clock.now()), heard_(began_) {}

  void heard() { heard_ = clock_.now(); }

  // Why the call is over, if it is.
  std::optional<Status> reached() const {
    if (limits_.stop.stop_requested()) return absl::CancelledError("stopped");
    if (left(began_, limits_.deadline) <= Duration::zero()) {
      return absl::DeadlineExceededError(
          fmt::format("not done within {:.1f} s", toSeconds(limits_.deadline)));
    }
    if (left(heard_, limits_.inactivity) <= Duration::zero()) {
      return absl::DeadlineExceededError(
          fmt::format("nothing heard for {:.1f} s", toSeconds(limits_.inactivity)));
    }
    return std::nullopt;
  }
  Duration left() const {
    return std::min(left(began_, limits_.deadline), left(heard_, limits_.inactivity));
  }
  const std::stop_token& stop() const { return limits_.stop; }

 private:
  // Limits may be as long as one likes.
  Duration left(TimePoint from, Duration limit) const {
    return std::min<Duration>(limit, std::chrono::hours(1000)) - (clock_.now() - from);
  }

  const HttpLimits& limits_;
  const Clock& clock_;
  const TimePoint began_;
  TimePoint heard_;
};

// Used by one call at a time, whose thread does all its work while it waits.
class Connection {
 public:
  using Tcp = boost::asio::ip::tcp;
  using Request = boost::beast::http::request<boost::beast::http::string_body>;
  using Parser = boost::beast::http::response_parser<boost::beast::http::buffer_body>;

  // Without TLS `context` is null.
  explicit Connection(std::shared_ptr<boost::asio::ssl::context> context)
      : context_(std::move(context)), socket_(io_), resolver_(io_) {
    if (context_) tls_.emplace(socket_, context_->native_handle());
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Each fails as HttpTransport does, without saying what may have happened; then this is of no use
  // any more.
  Status open(const ServerAddress& address, const std::string& server_name,
              const std::optional<ProxyAddress>& proxy, const HttpTransportOptions& options,
              Deadlines& deadlines);
  Status send(const Request& request, Deadlines& deadlines);
  Status readHead(Parser& parser, Deadlines& deadlines);
  // The next piece of the body, until the next call; empty at its end.
  StatusOr<std::string_view> readPiece(Parser& parser, Deadlines& deadlines);

  // Gives back what only a call needs. A connection may wait for the next one for long.
  void rest();
  // The server has neither closed it nor said something that nobody asked for.
  bool isQuiet();
  // It waits for a name to be looked up, which nobody can hurry: its end takes as long.
  bool resolving() const { return resolving_; }
  bool sent() const { return sent_; }  // the newest request, as a whole
  const std::shared_ptr<boost::asio::ssl::context>& context() const { return context_; }

 private:
  // Begins an operation of asio's and runs it to its end, whose error code is `code`.
  template <typename Begin>
  Status wait(Deadlines& deadlines, boost::system::error_code& code, const Begin& begin);
  Status passProxy(const ProxyAddress& proxy, const ServerAddress& address, Deadlines& deadlines);
  StatusOr<Tcp::resolver::results_type> resolve(const std::string& host, int port,
                                                Deadlines& deadlines);
  Status connect(const std::string& host, int port, const HttpTransportOptions& options,
                 Deadlines& deadlines);
  Status shakeHands(const std::string& name, Deadlines& deadlines);
  // Either stream: plain, or with TLS.
  template <typename Use>
  auto onStream(const Use& use) {
    return tls_ ? use(*tls_) : use(socket_);
  }

  boost::asio::io_context io_{1};
  const std::shared_ptr<boost::asio::ssl::context> context_;
  Tcp::socket socket_;
  Tcp::resolver resolver_;
  std::optional<TlsStream> tls_;
  boost::beast::flat_buffer buffer_;  // read, and not handed on yet
  std::vector<char> piece_;
  bool resolving_ = false;
  bool sent_ = false;
};

}  // namespace trainyard::control::internal
