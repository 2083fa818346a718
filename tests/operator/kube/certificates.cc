#include "tests/operator/kube/certificates.h"

#include "base/core/check.h"
#include "base/security/openssl_ptr.h"
#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/x509v3.h"

namespace trainyard::control {

namespace {

std::string textOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<std::size_t>(size));
}

std::string toPem(X509* cert) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), cert);
  return textOf(bio.get());
}

std::string toPem(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return textOf(bio.get());
}

void setName(X509_NAME* name, const std::string& common_name) {
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.data()),
                             static_cast<int>(common_name.size()), -1, 0);
}

void addExtension(X509* cert, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  TY_CHECK(extension, "the test's extension is well formed");
  X509_add_ext(cert, extension, -1);
  X509_EXTENSION_free(extension);
}

X509Ptr makeCertificate(const std::string& common_name, EVP_PKEY* key, long serial) {
  X509Ptr cert(X509_new());
  X509_set_version(cert.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(cert.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), 24 * 3600);
  X509_set_pubkey(cert.get(), key);
  setName(X509_get_subject_name(cert.get()), common_name);
  return cert;
}

}  // namespace

struct TestAuthority::Parts {
  KeyPtr key;
  X509Ptr cert;
};

TestAuthority::TestAuthority(const std::string& name) : parts_(std::make_unique<Parts>()) {
  parts_->key = KeyPtr(EVP_EC_gen("P-256"));
  parts_->cert = makeCertificate(name, parts_->key.get(), 1);
  X509* const cert = parts_->cert.get();
  X509_set_issuer_name(cert, X509_get_subject_name(cert));
  addExtension(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
  addExtension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign");
  addExtension(cert, cert, NID_subject_key_identifier, "hash");
  X509_sign(cert, parts_->key.get(), EVP_sha256());
  pem_ = toPem(cert);
}

TestAuthority::~TestAuthority() = default;

CertificateAndKey TestAuthority::issue(const std::string& common_name, const std::string& usage,
                                       const std::string& alt_names) {
  const KeyPtr key(EVP_EC_gen("P-256"));
  const X509Ptr cert = makeCertificate(common_name, key.get(), ++serial_);
  X509_set_issuer_name(cert.get(), X509_get_subject_name(parts_->cert.get()));
  addExtension(cert.get(), parts_->cert.get(), NID_basic_constraints, "critical,CA:FALSE");
  addExtension(cert.get(), parts_->cert.get(), NID_ext_key_usage, usage);
  if (!alt_names.empty()) {
    addExtension(cert.get(), parts_->cert.get(), NID_subject_alt_name, alt_names);
  }
  X509_sign(cert.get(), parts_->key.get(), EVP_sha256());
  return {toPem(cert.get()), toPem(key.get())};
}

CertificateAndKey TestAuthority::server(const std::vector<std::string>& names) {
  std::string alt_names;
  for (const std::string& name : names) {
    const bool is_address = name.find(':') != std::string::npos || name.starts_with("127.");
    alt_names += (alt_names.empty() ? "" : ",") + std::string(is_address ? "IP:" : "DNS:") + name;
  }
  return issue("test server", "serverAuth", alt_names);
}

CertificateAndKey TestAuthority::client(const std::string& common_name) {
  return issue(common_name, "clientAuth", "");
}

}  // namespace trainyard::control
