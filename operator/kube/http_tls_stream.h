// TLS over a socket of asio's. asio::ssl::stream does the same by way of four buffers of 17 KiB in
// each connection, between OpenSSL and the socket; here OpenSSL reads and writes the socket itself,
// and waits by asio. An apiserver is sent many calls at once, each over a connection.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "boost/asio/buffer.hpp"
#include "boost/asio/compose.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "openssl/err.h"
#include "openssl/ssl.h"

namespace trainyard::control::internal {

// A stream for asio's and Beast's asynchronous operations (their AsyncReadStream and
// AsyncWriteStream). One reading and one writing operation at a time, by the thread that runs the
// socket's io_context. The socket outlives it.
class TlsStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;  // as asio names it

  TlsStream(Socket& socket, SSL_CTX* context);

  executor_type get_executor() { return socket_.get_executor(); }
  SSL* native() { return ssl_.get(); }

  // With a socket that is connected. `handler` takes an error_code and a number of no meaning.
  template <typename Handler>
  auto shakeHands(Handler&& handler) {
    begin();
    return run(
        [](SSL* ssl) {
          return Step{SSL_do_handshake(ssl), 0};
        },
        std::forward<Handler>(handler));
  }

  template <typename Buffers, typename Handler>
  auto async_read_some(const Buffers& buffers, Handler&& handler) {
    return move(&SSL_read_ex, first<boost::asio::mutable_buffer>(buffers),
                std::forward<Handler>(handler));
  }

  template <typename Buffers, typename Handler>
  auto async_write_some(const Buffers& buffers, Handler&& handler) {
    return move(&SSL_write_ex, first<boost::asio::const_buffer>(buffers),
                std::forward<Handler>(handler));
  }

 private:
  struct Step {
    int result = 0;  // of OpenSSL: 1 is success
    std::size_t moved = 0;
  };
  enum class Next { kDone, kReadable, kWritable };

  void begin();
  // What OpenSSL waits for after `result`; `code` is why it is done.
  Next next(int result, boost::system::error_code& code);

  template <typename Buffer, typename Buffers>
  static Buffer first(const Buffers& buffers) {
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto it = boost::asio::buffer_sequence_begin(buffers); it != end; ++it) {
      if (const Buffer buffer(*it); buffer.size() > 0) return buffer;
    }
    return Buffer();
  }

  // SSL_read_ex or SSL_write_ex, whose arguments are alike.
  template <typename Operation, typename Buffer, typename Handler>
  auto move(Operation operation, Buffer buffer, Handler&& handler) {
    const auto step = [operation, buffer](SSL* ssl) {
      Step result;
      result.result = operation(ssl, buffer.data(), buffer.size(), &result.moved);
      return result;
    };
    return run(step, std::forward<Handler>(handler));
  }

  // `step` again whenever the socket is ready for what OpenSSL has to do.
  template <typename StepOf, typename Handler>
  auto run(StepOf step, Handler&& handler) {
    enum class At { kBegin, kWaited, kDone };
    return boost::asio::async_compose<Handler, void(boost::system::error_code, std::size_t)>(
        [this, step, at = At::kBegin, done = Step(), ended = boost::system::error_code()](
            auto& self, const boost::system::error_code& waited = {}) mutable {
          if (at == At::kDone) return self.complete(ended, done.moved);
          if (waited) return self.complete(waited, 0);
          ERR_clear_error();  // OpenSSL would take what others left there for this one's
          done = step(ssl_.get());
          const Next what = next(done.result, ended);
          if (what != Next::kDone) {
            at = At::kWaited;
            return socket_.async_wait(
                what == Next::kReadable ? Socket::wait_read : Socket::wait_write, std::move(self));
          }
          // Never a handler within the call that it was given to.
          const bool at_once = at == At::kBegin;
          at = At::kDone;
          if (at_once) return boost::asio::post(socket_.get_executor(), std::move(self));
          self.complete(ended, done.moved);
        },
        handler, socket_);
  }

  Socket& socket_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
};

}  // namespace trainyard::control::internal
