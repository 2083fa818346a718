// Certificates and keys for OpenSSL.
#pragma once

#include <string>

#include "base/core/status.h"
#include "openssl/ssl.h"
#include "operator/kube/config.h"
#include "operator/kube/exec_user.h"

namespace trainyard::control::internal {

struct TlsMaterial {
  std::string ca;    // PEM; "": the system's
  std::string cert;  // PEM, with intermediates; "": none
  std::string key;   // PEM
  bool operator==(const TlsMaterial&) const = default;
};

// As they are now, all three readable by OpenSSL. `given`: what config.exec has said, null without
// one. INVALID_ARGUMENT says which is not.
StatusOr<TlsMaterial> readTls(const KubeConfig& config, const ExecCredential* given = nullptr);

// Whether a server is named by an IPv4 or IPv6 address: such a name is compared with a
// certificate's addresses, and is not told to the server (RFC 6066, 3: literal addresses are no
// host names).
bool isAddress(const std::string& name);

// Trusts exactly the given authorities (any of them is an anchor, as with other clients of
// Kubernetes), asks the peer to be `server_name` (a DNS name or an address), shows the client
// certificate, and speaks TLS 1.2 or newer. Keeps what else the context has.
Status applyTls(SSL_CTX* context, const TlsMaterial& tls, const std::string& server_name);

}  // namespace trainyard::control::internal
