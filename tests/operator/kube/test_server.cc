#include "tests/operator/kube/test_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "openssl/err.h"
#include "openssl/pem.h"
#include "openssl/ssl.h"

namespace trainyard::control {

namespace {

X509* readCertificate(const std::string& pem) {
  BIO* const bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* const cert = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  TY_CHECK(cert, "a test's certificate is PEM");
  return cert;
}

EVP_PKEY* readKey(const std::string& pem) {
  BIO* const bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  TY_CHECK(key, "a test's key is PEM");
  return key;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

}  // namespace

bool ServerConnection::respond(int status, std::string_view body, std::string_view more_headers) {
  return send(
      fmt::format("HTTP/1.1 {} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
                  "{}\r\n{}",
                  status, body.size(), more_headers, body));
}

bool ServerConnection::beginChunks(int status) {
  return send(
      fmt::format("HTTP/1.1 {} x\r\nContent-Type: application/json\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n",
                  status));
}

bool ServerConnection::chunk(std::string_view data) {
  return send(fmt::format("{:x}\r\n{}\r\n", data.size(), data));
}

bool ServerConnection::endChunks() {
  return send("0\r\n\r\n");
}

struct TestServer::Tls {
  SSL_CTX* context = nullptr;

  Tls(const CertificateAndKey& certificate, const std::string& client_authority)
      : context(SSL_CTX_new(TLS_server_method())) {
    X509* const cert = readCertificate(certificate.cert);
    EVP_PKEY* const key = readKey(certificate.key);
    SSL_CTX_use_certificate(context, cert);
    SSL_CTX_use_PrivateKey(context, key);
    X509_free(cert);
    EVP_PKEY_free(key);
    if (client_authority.empty()) return;
    X509* const authority = readCertificate(client_authority);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority);
    X509_free(authority);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  ~Tls() { SSL_CTX_free(context); }
};

class TestServer::Peer : public ServerConnection {
 public:
  Peer(int fd, int number, std::shared_ptr<Tls> tls)
      : fd_(fd), number_(number), tls_(std::move(tls)) {
    if (!tls_) return;
    ssl_ = SSL_new(tls_->context);
    SSL_set_fd(ssl_, fd_);
  }
  ~Peer() override {
    if (thread.joinable()) thread.join();
    if (ssl_) SSL_free(ssl_);
    ::close(fd_);
  }

  bool accept() { return !ssl_ || SSL_accept(ssl_) == 1; }
  // From another thread: every read and write ends.
  void shutDown() { ::shutdown(fd_, SHUT_RDWR); }

  bool send(std::string_view bytes) override {
    while (!bytes.empty()) {
      const auto size = static_cast<int>(std::min<std::size_t>(bytes.size(), 1 << 16));
      const ssize_t n =
          ssl_ ? SSL_write(ssl_, bytes.data(), size)
               : ::send(fd_, bytes.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  void waitGone() override {
    while (fill()) {
    }
  }

  void relayTo(int port) override {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int other = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto* const name = reinterpret_cast<const sockaddr*>(&address);
    if (::connect(other, name, sizeof address) == 0) {
      pollfd both[] = {{fd_, POLLIN, 0}, {other, POLLIN, 0}};
      while (::poll(both, 2, -1) > 0) {
        if (both[0].revents != 0 && !pass(fd_, other)) break;
        if (both[1].revents != 0 && !pass(other, fd_)) break;
      }
    }
    ::close(other);
  }

  bool readRequest(SeenRequest* request) {
    std::size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!fill()) return false;
    }
    *request = {};
    const std::string head = buffer_.substr(0, end);
    buffer_.erase(0, end + 4);
    std::vector<std::string_view> lines = split(head, '\n');
    const std::vector<std::string_view> words = split(trim(lines[0]), ' ');
    if (words.size() < 2) return false;
    request->method = words[0];
    request->target = words[1];
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const auto [name, value] = splitFirst(trim(lines[i]), ':');
      request->headers[lower(name)] = trim(value);
    }
    const std::size_t size =
        parseNumber<std::size_t>(request->headers["content-length"]).value_or(0);
    while (buffer_.size() < size) {
      if (!fill()) return false;
    }
    request->body = buffer_.substr(0, size);
    buffer_.erase(0, size);
    request->connection = number_;
    request->common_name = commonName();
    return true;
  }

  std::thread thread;
  std::atomic<bool> done{false};

 private:
  static bool pass(int from, int to) {
    char bytes[16384];
    const ssize_t n = ::recv(from, bytes, sizeof bytes, 0);
    return n > 0 && ::send(to, bytes, static_cast<std::size_t>(n), MSG_NOSIGNAL) == n;
  }

  bool fill() {
    char bytes[16384];
    const ssize_t n =
        ssl_ ? SSL_read(ssl_, bytes, sizeof bytes) : ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }

  std::string commonName() const {
    X509* const cert = ssl_ ? SSL_get1_peer_certificate(ssl_) : nullptr;
    if (!cert) return {};
    char text[256] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, text, sizeof text);
    X509_free(cert);
    return text;
  }

  const int fd_;
  const int number_;
  const std::shared_ptr<Tls> tls_;
  SSL* ssl_ = nullptr;
  std::string buffer_;
};

TestServer::TestServer(TestServerOptions options, Handler handler)
    : options_(std::move(options)), handler_(std::move(handler)) {
  ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to peers that have gone
  if (!options_.certificate.cert.empty()) setCertificate(options_.certificate);
  sockaddr_in6 six{};
  sockaddr_in four{};
  const bool is_six = options_.address.find(':') != std::string::npos;
  six.sin6_family = AF_INET6;
  four.sin_family = AF_INET;
  ::inet_pton(AF_INET6, options_.address.c_str(), &six.sin6_addr);
  ::inet_pton(AF_INET, options_.address.c_str(), &four.sin_addr);
  auto* const address =
      is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  socklen_t size = is_six ? sizeof six : sizeof four;
  listener_ = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(listener_, address, size) != 0 || ::listen(listener_, 64) != 0) return;
  ::getsockname(listener_, address, &size);
  port_ = ntohs(is_six ? six.sin6_port : four.sin_port);
  accept_thread_ = std::thread([this] { acceptLoop(); });
}

void TestServer::dropConnections() {
  const std::lock_guard lock(mutex_);
  for (const auto& peer : peers_) peer->shutDown();
}

TestServer::~TestServer() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  if (accept_thread_.joinable()) accept_thread_.join();
  dropConnections();
  peers_.clear();
  ::close(listener_);
}

std::string TestServer::url() const {
  const bool is_six = options_.address.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", options_.certificate.cert.empty() ? "http" : "https",
                     is_six ? "[" : "", options_.address, is_six ? "]" : "", port_);
}

std::vector<SeenRequest> TestServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void TestServer::setCertificate(const CertificateAndKey& certificate) {
  const std::lock_guard lock(mutex_);
  tls_ = std::make_shared<Tls>(certificate, options_.client_authority);
}

void TestServer::acceptLoop() {
  while (!stopping_) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      ::close(fd);
      return;
    }
    peers_.remove_if([](const std::unique_ptr<Peer>& peer) { return peer->done.load(); });
    peers_.push_back(std::make_unique<Peer>(fd, ++connections_, tls_));
    Peer& peer = *peers_.back();
    peer.thread = std::thread([this, &peer] { serve(peer); });
  }
}

void TestServer::serve(Peer& peer) {
  if (peer.accept()) {
    SeenRequest request;
    while (!stopping_ && peer.readRequest(&request)) {
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      if (!handler_(peer, request)) break;
    }
  }
  peer.shutDown();
  peer.done = true;
}

}  // namespace trainyard::control
