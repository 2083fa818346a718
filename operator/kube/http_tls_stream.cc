#include "operator/kube/http_tls_stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

#include "boost/asio/error.hpp"
#include "boost/asio/ssl/error.hpp"
#include "openssl/bio.h"
#include "openssl/err.h"

namespace trainyard::control::internal {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;

int descriptorOf(BIO* bio) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
}

bool mayBeRepeated(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

int writeSocket(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      ::send(descriptorOf(bio), data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (mayBeRepeated(sent)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int readSocket(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(descriptorOf(bio), data, static_cast<std::size_t>(size), 0);
  if (mayBeRepeated(got)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long controlSocket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return 0;
}

// OpenSSL's own BIO of a socket raises SIGPIPE where the other end is gone.
BIO_METHOD* socketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write(made, &writeSocket);
    BIO_meth_set_read(made, &readSocket);
    BIO_meth_set_ctrl(made, &controlSocket);
    return made;
  }();
  return method;
}

}  // namespace

TlsStream::TlsStream(Socket& socket, SSL_CTX* context)
    : socket_(socket), ssl_(SSL_new(context), &SSL_free) {
  SSL_set_mode(ssl_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                               SSL_MODE_RELEASE_BUFFERS);
  SSL_set_read_ahead(ssl_.get(), 1);  // a record by one call of the system instead of two
  SSL_set_connect_state(ssl_.get());
}

void TlsStream::begin() {
  error_code ignored;
  socket_.native_non_blocking(true, ignored);
  BIO* const bio = BIO_new(socketMethod());
  BIO_set_data(bio, reinterpret_cast<void*>(std::intptr_t{socket_.native_handle()}));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
}

TlsStream::Next TlsStream::next(int result, error_code& code) {
  const int system = errno;
  const int error = SSL_get_error(ssl_.get(), result);
  const unsigned long reason = ERR_get_error();
  ERR_clear_error();
  switch (error) {
    case SSL_ERROR_NONE:
      return Next::kDone;
    case SSL_ERROR_WANT_READ:
      return Next::kReadable;
    case SSL_ERROR_WANT_WRITE:
      return Next::kWritable;
    case SSL_ERROR_ZERO_RETURN:
      code = asio::error::eof;
      return Next::kDone;
    case SSL_ERROR_SSL:
      // Without a word that it ends here: what was said last may be cut off.
      if (ERR_GET_REASON(reason) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        code = asio::ssl::error::stream_truncated;
      } else {
        code = error_code(static_cast<int>(reason), asio::error::get_ssl_category());
      }
      return Next::kDone;
    default:
      code = system != 0 ? error_code(system, asio::error::get_system_category())
                         : error_code(asio::ssl::error::stream_truncated);
      return Next::kDone;
  }
}

}  // namespace trainyard::control::internal
