#include "runtime/storage/s3/http.h"

#include <signal.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <mutex>
#include <vector>

#include "fmt/format.h"
#include "httplib.h"

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

using Connection = std::unique_ptr<httplib::Client>;

class HttplibHttp : public Http {
 public:
  explicit HttplibHttp(std::string ca_file) : ca_file_(std::move(ca_file)) {}

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
    const httplib::Result result = connection->send(wanted);
    if (too_large)
      return absl::ResourceExhaustedError(fmt::format("answers more than {} bytes", max_body));
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
    auto made = std::make_unique<httplib::Client>(scheme_and_host);
    made->set_connection_timeout(kConnect);
    made->set_read_timeout(kSilent);
    made->set_write_timeout(kSilent);
    made->set_keep_alive(true);
    made->set_tcp_nodelay(true);
    made->set_url_encode(false);  // it is, and the signature is of this very path
    made->set_decompress(false);
    if (!ca_file_.empty()) made->set_ca_cert_path(ca_file_);
    return made;
  }
  void giveBack(const std::string& scheme_and_host, Connection connection) {
    const std::lock_guard lock(mutex_);
    idle_[scheme_and_host].push_back(std::move(connection));
  }

  const std::string ca_file_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Connection>> idle_;
};

}  // namespace

std::unique_ptr<Http> makeHttp(const std::string& ca_file) {
  return std::make_unique<HttplibHttp>(ca_file);
}

}  // namespace trainyard::runtime::s3
