#include "operator/kube/http_tls.h"

#include <arpa/inet.h>

#include <memory>
#include <vector>

#include "base/security/openssl_ptr.h"
#include "fmt/format.h"
#include "openssl/err.h"
#include "openssl/pem.h"
#include "openssl/x509v3.h"

namespace trainyard::control::internal {

namespace {

using StorePtr = std::unique_ptr<X509_STORE, FreeWith<X509_STORE_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>;

BioPtr readerOf(const std::string& pem) {
  return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// OpenSSL's reason for the failure just seen; its queue is empty afterwards.
Status sslError(std::string_view what) {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return absl::InvalidArgumentError(fmt::format("{}: {}", what, reason ? reason : "not valid"));
}

StatusOr<std::vector<X509Ptr>> readCertificates(const std::string& pem, std::string_view what) {
  const BioPtr reader = readerOf(pem);
  std::vector<X509Ptr> result;
  while (X509* const next = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
    result.emplace_back(next);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (!at_end || result.empty()) {
    return sslError(fmt::format("{}: expected PEM certificates", what));
  }
  ERR_clear_error();
  return result;
}

Status useAuthorities(SSL_CTX* context, const std::string& pem) {
  TY_ASSIGN_OR_RETURN(const std::vector<X509Ptr> authorities,
                      readCertificates(pem, "certificate authority"));
  StorePtr store(X509_STORE_new());
  for (const X509Ptr& authority : authorities) {
    if (X509_STORE_add_cert(store.get(), authority.get()) != 1) {
      return sslError("certificate authority");
    }
  }
  SSL_CTX_set_cert_store(context, store.release());
  return absl::OkStatus();
}

Status useClientCertificate(SSL_CTX* context, const TlsMaterial& tls) {
  TY_ASSIGN_OR_RETURN(const std::vector<X509Ptr> chain,
                      readCertificates(tls.cert, "client certificate"));
  if (SSL_CTX_use_certificate(context, chain.front().get()) != 1) {
    return sslError("client certificate");
  }
  for (std::size_t at = 1; at < chain.size(); ++at) {
    if (SSL_CTX_add1_chain_cert(context, chain[at].get()) != 1) {
      return sslError("client certificate");
    }
  }
  const BioPtr reader = readerOf(tls.key);
  const KeyPtr key(PEM_read_bio_PrivateKey(reader.get(), nullptr, nullptr, nullptr));
  if (!key) return sslError("client key");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return sslError("client key");
  }
  return absl::OkStatus();
}

Status expectPeer(SSL_CTX* context, const std::string& name) {
  X509_VERIFY_PARAM* const param = SSL_CTX_get0_param(context);
  X509_VERIFY_PARAM_set_hostflags(
      param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN);
  const int set = isAddress(name) ? X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str())
                                  : X509_VERIFY_PARAM_set1_host(param, name.data(), name.size());
  return set == 1 ? absl::OkStatus() : sslError(fmt::format("server name '{}'", name));
}

}  // namespace

bool isAddress(const std::string& name) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, name.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), bytes) == 1;
}

Status applyTls(SSL_CTX* context, const TlsMaterial& tls, const std::string& server_name) {
  if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) return sslError("TLS 1.2");
  if (!tls.ca.empty()) TY_RETURN_IF_ERROR(useAuthorities(context, tls.ca));
  if (!tls.cert.empty()) TY_RETURN_IF_ERROR(useClientCertificate(context, tls));
  return expectPeer(context, server_name);
}

StatusOr<TlsMaterial> readTls(const KubeConfig& config, const ExecCredential* given) {
  TlsMaterial tls;
  TY_ASSIGN_OR_RETURN(tls.ca, readSecret(config.ca));
  if (given != nullptr) {
    tls.cert = given->cert;
    tls.key = given->key;
  } else {
    TY_ASSIGN_OR_RETURN(tls.cert, readSecret(config.client_cert));
    TY_ASSIGN_OR_RETURN(tls.key, readSecret(config.client_key));
  }
  if (!config.ca.empty() && tls.ca.empty()) {
    // Falling back to the system's would trust others than the user does.
    return absl::InvalidArgumentError("certificate authority: the file is empty");
  }
  const ContextPtr trial(SSL_CTX_new(TLS_client_method()));
  const Status usable = applyTls(trial.get(), tls, "trial.invalid");
  if (!usable.ok()) return usable;
  return tls;
}

}  // namespace trainyard::control::internal
