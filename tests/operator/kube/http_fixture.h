// What tests of an HttpTransport share.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>

#include "gmock/gmock.h"
#include "operator/kube/http_transport.h"
#include "tests/operator/kube/certificates.h"
#include "tests/operator/kube/http_library.h"
#include "tests/operator/kube/test_server.h"

namespace trainyard::control {

// Bounds against hangs: nothing here takes so long.
inline HttpLimits patient() {
  return {.deadline = std::chrono::seconds(60),
          .inactivity = std::chrono::seconds(60),
          .max_body = 1 << 24,
          .stop = {}};
}
inline HttpLimits silentFor(Duration limit) {
  HttpLimits limits = patient();
  limits.inactivity = limit;
  return limits;
}

// A one-shot signal.
class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  bool wait(Duration limit = std::chrono::seconds(30)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

inline TestAuthority& authority() {
  static TestAuthority one("the right one");
  return one;
}

inline TestServerOptions withTls() {
  TestServerOptions options;
  options.certificate = authority().server({"127.0.0.1", "::1", "api.test"});
  return options;
}

inline KubeConfig configFor(const TestServer& server) {
  KubeConfig config;
  config.server = server.url();
  config.ca.value = authority().pem();
  return config;
}

inline std::unique_ptr<HttpTransport> transportTo(const KubeConfig& config,
                                                  HttpTransportOptions options = {}) {
  options.library = libraryUnderTest();
  auto transport = makeHttpTransport(config, systemClock(), options);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return transport.ok() ? *std::move(transport) : nullptr;
}

inline const HttpRequest kGet{"GET", "/x", {}, ""};

inline bool takeAnything(const HttpResponse&) {
  return true;
}
inline bool ignoreData(std::string_view) {
  return true;
}

}  // namespace trainyard::control
