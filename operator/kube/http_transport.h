// The HttpTransport over TLS, by one of two libraries whose headers only http_*.cc files see. What
// is linked takes memory, used or not: cpprestsdk is in a target of its own, of which nothing else
// knows (operator_kube_http_cpprest).
#pragma once

#include <memory>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "operator/kube/config.h"
#include "operator/kube/http.h"

namespace trainyard::control {

struct HttpTransportOptions;

namespace internal {
struct TlsMaterial;
}

// Makes the transport of one library. `tls` is what was read already, if anything.
using HttpLibrary = std::unique_ptr<HttpTransport>(
    const KubeConfig& config, ServerAddress address, const Clock& clock,
    const HttpTransportOptions& options, std::shared_ptr<const internal::TlsMaterial> tls);

HttpLibrary boostBeast;
HttpLibrary cpprestsdk;  // in operator_kube_http_cpprest

struct HttpTransportOptions {
  HttpLibrary* library = &boostBeast;
  // Calls under way at once, and connections kept open between them; more calls wait. (Streams do
  // not count, each has a connection of its own.) With cpprestsdk a new connection costs some 30 ms
  // of computing where the system has a bundle of certificate authorities: the library reads it
  // each time, wanted or not.
  int connections = 48;
  // Certificates and keys in files are read again after this time; new ones count for new
  // connections.
  Duration reread = std::chrono::seconds(60);
  // Probes on a connection that is silent begin after this time, and end it three intervals later.
  Duration keepalive_idle = std::chrono::seconds(15);
  Duration keepalive_interval = std::chrono::seconds(5);
};

// To config.server, by config.proxy if there is one. The server's certificate is always verified.
// With the client certificate of `config` if any; sends no token. Connects, and asks config.exec,
// when it is called first. INVALID_ARGUMENT names what of `config`
// cannot be read. `clock` outlives the transport and must move by itself. cpprestsdk starts threads
// that are shared by all transports and stay until the process ends; with Beast a call's own thread
// moves its bytes.
StatusOr<std::unique_ptr<HttpTransport>> makeHttpTransport(const KubeConfig& config,
                                                           const Clock& clock,
                                                           HttpTransportOptions options = {});

}  // namespace trainyard::control
