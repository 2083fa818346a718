// From a configuration to something a KubeClient can use: TLS, token, metrics.
#pragma once

#include <memory>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "operator/kube/config.h"
#include "operator/kube/http.h"
#include "operator/kube/http_transport.h"
#include "prometheus/registry.h"

namespace trainyard::control {

struct ConnectionOptions {
  HttpTransportOptions http;
  // A token in a file is read again after this time, and when the server does not accept it.
  Duration reread_token = std::chrono::seconds(60);
  // Where requests are counted; null: nowhere. Outlives the connection.
  prometheus::Registry* registry = nullptr;
};

// As makeHttpTransport(), with `config`'s token in every request, and the requests counted. Each
// caller has connections of its own: one who must not wait for others makes another.
StatusOr<std::unique_ptr<HttpTransport>> connectTo(const KubeConfig& config, const Clock& clock,
                                                   ConnectionOptions options = {});

// The parts, for tests. `inner` is what they hand on to.
// Adds the token. A request that is answered by 401 is sent once more when the file has another
// token by then.
std::unique_ptr<HttpTransport> addToken(std::unique_ptr<HttpTransport> inner, KubeSecret token,
                                        const Clock& clock, Duration reread);
// The same with what a program says. It is asked again after a 401; what it says then, be it a
// token or a certificate, is tried once.
std::unique_ptr<HttpTransport> addToken(std::unique_ptr<HttpTransport> inner,
                                        std::shared_ptr<ExecUser> user, const Clock& clock);
// Counts rest_client_requests_total{code,method,host} and observes
// rest_client_request_duration_seconds{verb,host}; a stream lasts until its head.
std::unique_ptr<HttpTransport> addMetrics(std::unique_ptr<HttpTransport> inner, std::string host,
                                          const Clock& clock, prometheus::Registry& registry);

}  // namespace trainyard::control
