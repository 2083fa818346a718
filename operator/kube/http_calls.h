// What every HttpTransport does that has calls by streams and shows certificates.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "operator/kube/config.h"
#include "operator/kube/http.h"
#include "operator/kube/http_tls.h"
#include "operator/kube/http_transport.h"

namespace trainyard::control::internal {

// How many calls may be under way. Thread-safe.
class CallSlots {
 public:
  explicit CallSlots(int count) : free_(count) {}

  // True, and a release() is owed; false at `until` or when stopped.
  bool acquire(TimePoint until, const std::stop_token& stop);
  void release();

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int free_;
};

// Certificates and keys of a configuration, read again now and then. Thread-safe.
class TlsSource {
 public:
  // `read`: as they are now; null: a program has to be asked first. Both references outlive it.
  TlsSource(const KubeConfig& config, const Clock& clock, Duration reread,
            std::shared_ptr<const TlsMaterial> read)
      : config_(config), clock_(clock), reread_(reread), tls_(std::move(read)), at_(clock.now()) {}

  // The same object as long as nothing changes.
  StatusOr<std::shared_ptr<const TlsMaterial>> current(const std::stop_token& stop);

 private:
  const KubeConfig& config_;
  const Clock& clock_;
  const Duration reread_;
  std::mutex mutex_;
  std::shared_ptr<const TlsMaterial> tls_;
  std::uint64_t issue_ = 0;  // of the program's answer in it
  TimePoint at_;
};

// Its call() is a stream() whose pieces are collected, a bounded number at once.
class CallingTransport : public HttpTransport {
 public:
  CallingTransport(KubeConfig config, ServerAddress address, const Clock& clock,
                   HttpTransportOptions options, std::shared_ptr<const TlsMaterial> read)
      : config_(std::move(config)),
        address_(std::move(address)),
        clock_(clock),
        options_(options),
        tls_(config_, clock, options.reread, std::move(read)),
        slots_(options.connections) {}

  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits& limits) override;

 protected:
  // That the server's certificate is for.
  const std::string& serverName() const {
    return config_.tls_server_name.empty() ? address_.host : config_.tls_server_name;
  }

  const KubeConfig config_;
  const ServerAddress address_;
  const Clock& clock_;
  const HttpTransportOptions options_;
  TlsSource tls_;

 private:
  StatusOr<HttpResponse> collect(const HttpRequest& request, const HttpLimits& limits);

  CallSlots slots_;
};

}  // namespace trainyard::control::internal
