#include "operator/kube/http_transport.h"

#include "operator/kube/http_calls.h"

namespace trainyard::control {

StatusOr<std::unique_ptr<HttpTransport>> makeHttpTransport(const KubeConfig& config,
                                                           const Clock& clock,
                                                           HttpTransportOptions options) {
  TY_ASSIGN_OR_RETURN(ServerAddress address, parseServer(config.server));
  std::shared_ptr<const internal::TlsMaterial> read;
  if (!config.exec) {
    auto tls = internal::readTls(config);
    if (!tls.ok()) return annotate(tls.status(), config.server);
    read = std::make_shared<internal::TlsMaterial>(*std::move(tls));
  }
  return options.library(config, std::move(address), clock, options, std::move(read));
}

}  // namespace trainyard::control
