#include "base/security/job_keys.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/escaping.h"
#include "base/core/check.h"
#include "base/security/hkdf.h"
#include "base/security/openssl_ptr.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

using ExtensionPtr = std::unique_ptr<X509_EXTENSION, FreeWith<X509_EXTENSION_free>>;

constexpr std::string_view kSalt = "trainyard.dev";
constexpr std::size_t kKeyBytes = 32;  // of Ed25519, and of a token
constexpr std::size_t kSerialBytes = 16;
constexpr std::size_t kIdBytes = 8;
// Fixed, so that a certificate can be derived again.
constexpr const char* kNotBefore = "20200101000000Z";
constexpr const char* kNotAfter = "21200101000000Z";

std::string derive(std::string_view root, std::string_view uid, std::string_view purpose,
                   std::size_t bytes) {
  return hkdfSha256(root, kSalt, fmt::format("{}/{}", purpose, uid), bytes);
}

KeyPtr keyFrom(const std::string& seed) {
  KeyPtr key(EVP_PKEY_new_raw_private_key(
      EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(seed.data()), seed.size()));
  TY_CHECK(key != nullptr, "32 bytes are a private key of Ed25519");
  return key;
}

std::string pemOf(const BioPtr& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

std::string pemOf(X509& cert) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  TY_CHECK(PEM_write_bio_X509(bio.get(), &cert) == 1, "memory can be written to");
  return pemOf(bio);
}

std::string pemOf(EVP_PKEY& key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  TY_CHECK(PEM_write_bio_PrivateKey(bio.get(), &key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
           "memory can be written to");
  return pemOf(bio);
}

void setName(X509_NAME* name, std::string_view common_name) {
  TY_CHECK(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(common_name.data()),
                                      static_cast<int>(common_name.size()), -1, 0) == 1,
           "a short name of ASCII is a common name");
}

void extend(X509& cert, int kind, const std::string& value) {
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str()));
  TY_CHECK(extension != nullptr && X509_add_ext(&cert, extension.get(), -1) == 1,
           "the extension is well formed");
}

struct Draft {
  std::string_view name;
  std::string_view issuer;
  std::string serial;  // bytes
  bool authority = false;
  const char* usage = "";  // extended key usage
};

X509Ptr makeCert(const Draft& draft, EVP_PKEY& key, EVP_PKEY& signer) {
  X509Ptr cert(X509_new());
  X509_set_version(cert.get(), X509_VERSION_3);
  std::string serial = draft.serial;
  serial[0] = static_cast<char>(serial[0] & 0x7f);  // positive
  BIGNUM* const number = BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()),
                                   static_cast<int>(serial.size()), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert.get()));
  BN_free(number);
  ASN1_TIME_set_string_X509(X509_getm_notBefore(cert.get()), kNotBefore);
  ASN1_TIME_set_string_X509(X509_getm_notAfter(cert.get()), kNotAfter);
  setName(X509_get_subject_name(cert.get()), draft.name);
  setName(X509_get_issuer_name(cert.get()), draft.issuer);
  TY_CHECK(X509_set_pubkey(cert.get(), &key) == 1, "the key is one");
  if (draft.authority) {
    extend(*cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
    extend(*cert, NID_key_usage, "critical,keyCertSign");
  } else {
    extend(*cert, NID_basic_constraints, "critical,CA:FALSE");
    extend(*cert, NID_key_usage, "critical,digitalSignature");
    extend(*cert, NID_ext_key_usage, draft.usage);
    extend(*cert, NID_subject_alt_name, fmt::format("DNS:{}", draft.name));
  }
  // Ed25519 takes no digest, and gives the same signature each time.
  TY_CHECK(X509_sign(cert.get(), &signer, nullptr) > 0, "the signer's key can sign");
  return cert;
}

// Who signs a job's certificates, and the keys of whom it signs: all from one secret.
class Authority {
 public:
  // `scope` tells what is derived from one secret for several jobs apart.
  Authority(std::string_view secret, std::string_view scope, std::string name)
      : secret_(secret), scope_(scope), name_(std::move(name)), key_(keyFrom(bytes("ca"))) {
    const Draft draft{.name = name_, .issuer = name_, .serial = serial("ca"), .authority = true};
    pem_ = pemOf(*makeCert(draft, *key_, *key_));
  }
  std::string bytes(std::string_view purpose) const {
    return derive(secret_, scope_, purpose, kKeyBytes);
  }
  TlsIdentity issue(std::string_view who, std::string_view name, const char* usage) const {
    const KeyPtr key = keyFrom(bytes(who));
    const Draft draft{.name = name, .issuer = name_, .serial = serial(who), .usage = usage};
    return TlsIdentity{pem_, pemOf(*makeCert(draft, *key, *key_)), pemOf(*key)};
  }

 private:
  std::string serial(std::string_view who) const {
    return derive(secret_, scope_, fmt::format("{}-serial", who), kSerialBytes);
  }

  const std::string_view secret_;
  const std::string_view scope_;
  const std::string name_;
  const KeyPtr key_;
  std::string pem_;
};

}  // namespace

JobKeys deriveJobKeys(std::string_view root_secret, std::string_view job_uid) {
  const Authority ca(root_secret, job_uid, fmt::format("trainyard job {}", job_uid.substr(0, 36)));
  return {.token = absl::BytesToHexString(ca.bytes("token")),
          .task = ca.issue("task", kTaskServerName, "serverAuth"),
          .client = ca.issue("client", "operator.trainyard.dev", "clientAuth")};
}

RuntimeKeys deriveRuntimeKeys(std::string_view token) {
  // A name of its own: what another authority of the same name has signed is a broken signature
  // instead of an unknown issuer.
  const std::string id = absl::BytesToHexString(derive(token, "runtime", "id", kIdBytes));
  const Authority ca(token, "runtime", fmt::format("trainyard runtime {}", id));
  return {.control = ca.issue("control", kRuntimeServerName, "serverAuth,clientAuth"),
          .data = absl::BytesToHexString(ca.bytes("data"))};
}

std::string deriveProgramSecret(std::string_view token) {
  return absl::BytesToHexString(derive(token, "program", "secret", kKeyBytes));
}

std::string rootId(std::string_view root_secret) {
  return absl::BytesToHexString(hkdfSha256(root_secret, kSalt, "id", kIdBytes));
}

}  // namespace trainyard
