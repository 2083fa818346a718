#include "runtime/stream/tls_stream.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "fmt/format.h"

namespace trainyard::runtime::stream {
namespace {

constexpr std::size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::size_t kReadAhead = std::size_t{64} << 10;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* held) const {
    Free(held);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using TlsHandle = std::unique_ptr<SSL, Freed<SSL_free>>;

Bio bioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// What OpenSSL says of the failure before; its queue of errors is empty afterwards.
std::string lastError() {
  char text[256] = "no reason";
  if (const unsigned long code = ERR_get_error(); code != 0)
    ERR_error_string_n(code, text, sizeof(text));
  ERR_clear_error();
  return text;
}

// What OpenSSL reads from and writes to: a socket whose end is no signal, and is remembered.
struct Socket {
  UniqueFd fd;
  Status lost;  // why nothing more can be read or written
};

int readSocket(BIO* bio, char* into, int most) {
  auto& socket = *static_cast<Socket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t n = ::recv(socket.fd.get(), into, static_cast<std::size_t>(most), MSG_DONTWAIT);
  if (n > 0) return static_cast<int>(n);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    BIO_set_retry_read(bio);
    return -1;
  }
  socket.lost = n == 0 ? closedConnection() : brokenConnection(errno, "receive");
  return static_cast<int>(n);
}

int writeSocket(BIO* bio, const char* from, int bytes) {
  auto& socket = *static_cast<Socket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t n =
      ::send(socket.fd.get(), from, static_cast<std::size_t>(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) return static_cast<int>(n);
  if (errno == EAGAIN || errno == EINTR) {
    BIO_set_retry_write(bio);
  } else {
    socket.lost = brokenConnection(errno, "send");
  }
  return -1;
}

long controlSocket(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* socketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    TY_CHECK(made != nullptr && BIO_meth_set_read(made, readSocket) == 1 &&
                 BIO_meth_set_write(made, writeSocket) == 1 &&
                 BIO_meth_set_ctrl(made, controlSocket) == 1,
             "OpenSSL has memory for a kind of connections");
    return made;
  }();
  return method;
}

class TlsStream final : public Stream {
 public:
  TlsStream(UniqueFd socket, TlsHandle connection, std::uint64_t records_per_key)
      : socket_{std::move(socket), absl::OkStatus()},
        connection_(std::move(connection)),
        records_per_key_(records_per_key) {
    BIO* const bio = BIO_new(socketMethod());
    TY_CHECK(connection_ != nullptr && bio != nullptr, "OpenSSL has memory for a connection");
    BIO_set_data(bio, &socket_);
    BIO_set_init(bio, 1);
    SSL_set_bio(connection_.get(), bio, bio);
    // One record a call. What has not left is given again from where it lies then.
    SSL_set_mode(connection_.get(),
                 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  }
  StatusOr<std::size_t> read(std::span<const iovec> into) override {
    return moveAll(Parts(into), [&](Parts& parts) {
      const auto [begin, bytes] = parts.next(INT_MAX);
      return SSL_read(connection_.get(), begin, static_cast<int>(bytes));
    });
  }
  StatusOr<std::size_t> write(std::span<const iovec> from) override {
    return moveAll(Parts(from), [&](Parts& parts) {
      if (records_ >= records_per_key_) changeKey();
      // One that has not quite left is given again, as long as it was.
      const std::size_t want = begun_ > 0 ? begun_ : kRecord;
      auto [begin, bytes] = parts.next(want);
      if (bytes < want) {
        // What is short, as a header is, shares a record with what follows.
        bytes = parts.copy(record_, want);
        begin = record_.data();
      }
      TY_CHECK(bytes >= begun_, "what was not moved comes again");
      const int n = SSL_write(connection_.get(), begin, static_cast<int>(bytes));
      begun_ = n > 0 ? 0 : bytes;
      if (n > 0) ++records_;
      return n;
    });
  }
  bool awaitsWritable() const override { return awaits_writable_; }
  int fd() const override { return socket_.fd.get(); }

 private:
  // What is left of the parts of one call.
  class Parts {
   public:
    explicit Parts(std::span<const iovec> all) : left_(all) {}
    bool empty() const { return left_.empty(); }
    // Those that lie in one place.
    std::pair<char*, std::size_t> next(std::size_t most) const {
      const iovec& part = left_.front();
      return {static_cast<char*>(part.iov_base) + skip_, std::min(part.iov_len - skip_, most)};
    }
    std::size_t copy(std::vector<char>& into, std::size_t most) const {
      into.resize(kRecord);
      std::size_t copied = 0;
      for (Parts rest = *this; copied < most && !rest.empty();) {
        const auto [begin, bytes] = rest.next(most - copied);
        std::memcpy(into.data() + copied, begin, bytes);
        copied += bytes;
        rest.drop(bytes);
      }
      return copied;
    }
    void drop(std::size_t bytes) {
      for (skip_ += bytes; !left_.empty() && skip_ >= left_.front().iov_len;) {
        skip_ -= left_.front().iov_len;
        left_ = left_.subspan(1);
      }
    }

   private:
    std::span<const iovec> left_;
    std::size_t skip_ = 0;  // of the first
  };

  template <typename Move>
  StatusOr<std::size_t> moveAll(Parts parts, Move move) {
    std::size_t moved = 0;
    awaits_writable_ = false;
    while (!parts.empty()) {
      ERR_clear_error();
      const int n = move(parts);
      if (n <= 0) {
        // What was moved counts; a failure is there the next time as well.
        const Status status = judge(n);
        if (!status.ok() && moved == 0) return status;
        return moved;
      }
      moved += static_cast<std::size_t>(n);
      parts.drop(static_cast<std::size_t>(n));
    }
    return moved;
  }
  // The other side keeps its own. Where it cannot be now, as in the middle of the other's change,
  // before the next record.
  void changeKey() {
    if (SSL_key_update(connection_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) records_ = 0;
    ERR_clear_error();
  }
  // Nothing that ends in good order ends with the connection: whether all has come its reader
  // knows. So an end without TLS's own farewell is one.
  Status judge(int result) {
    const int error = SSL_get_error(connection_.get(), result);
    if (error == SSL_ERROR_WANT_READ) return absl::OkStatus();
    if (error == SSL_ERROR_WANT_WRITE) {
      awaits_writable_ = true;
      return absl::OkStatus();
    }
    if (!socket_.lost.ok()) return socket_.lost;
    if (error == SSL_ERROR_ZERO_RETURN) return closedConnection();
    return absl::UnavailableError(fmt::format("TLS: {}", lastError()));
  }

  Socket socket_;
  const TlsHandle connection_;
  const std::uint64_t records_per_key_;
  std::uint64_t records_ = 0;  // sent with the key in use
  std::size_t begun_ = 0;      // bytes of a record that has not left yet
  std::vector<char> record_;
  bool awaits_writable_ = false;
};

Status configure(SSL_CTX* context, const TlsIdentity& identity) {
  const Bio ca = bioOf(identity.ca);
  const Bio cert = bioOf(identity.cert);
  const Bio key = bioOf(identity.key);
  const Certificate authority(PEM_read_bio_X509(ca.get(), nullptr, nullptr, nullptr));
  const Certificate own(PEM_read_bio_X509(cert.get(), nullptr, nullptr, nullptr));
  const PrivateKey secret(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
  const bool done = authority != nullptr && own != nullptr && secret != nullptr &&
                    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) == 1 &&
                    SSL_CTX_use_certificate(context, own.get()) == 1 &&
                    SSL_CTX_use_PrivateKey(context, secret.get()) == 1;
  if (!done) return absl::InternalError(fmt::format("TLS: {}", lastError()));
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // Several records from the kernel at once.
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadAhead);
  // Connections are few and long: nothing is kept for a later one.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::make(const TlsIdentity& identity,
                                                             std::uint64_t records_per_key) {
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  TY_CHECK(context != nullptr, "OpenSSL has memory for a context");
  std::shared_ptr<const TlsContext> made(new TlsContext(context, records_per_key));
  TY_RETURN_IF_ERROR(configure(context, identity));
  return made;
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
}

std::unique_ptr<Stream> TlsContext::client(UniqueFd socket) const {
  TlsHandle connection(SSL_new(context_));
  SSL_set_hostflags(connection.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  TY_CHECK(SSL_set1_host(connection.get(), kRuntimeServerName.data()) == 1, "a name of a server");
  SSL_set_connect_state(connection.get());
  return std::make_unique<TlsStream>(std::move(socket), std::move(connection), records_per_key_);
}

std::unique_ptr<Stream> TlsContext::server(UniqueFd socket) const {
  TlsHandle connection(SSL_new(context_));
  SSL_set_accept_state(connection.get());
  return std::make_unique<TlsStream>(std::move(socket), std::move(connection), records_per_key_);
}

}  // namespace trainyard::runtime::stream
