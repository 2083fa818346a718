#include "base/security/hkdf.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <memory>

#include "base/core/check.h"
#include "base/security/openssl_ptr.h"

namespace trainyard {
namespace {

// OpenSSL takes no constant memory, and does not write to it. It refuses a null pointer, which an
// empty view may have.
OSSL_PARAM bytesParam(const char* name, std::string_view bytes) {
  static char nothing = 0;
  void* data = bytes.empty() ? &nothing : const_cast<char*>(bytes.data());
  return OSSL_PARAM_construct_octet_string(name, data, bytes.size());
}

}  // namespace

std::string hkdfSha256(std::string_view secret, std::string_view salt, std::string_view info,
                       std::size_t bytes) {
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  TY_CHECK(kdf != nullptr, "OpenSSL provides HKDF");
  const std::unique_ptr<EVP_KDF_CTX, FreeWith<EVP_KDF_CTX_free>> context(EVP_KDF_CTX_new(kdf));
  EVP_KDF_free(kdf);
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                               bytesParam(OSSL_KDF_PARAM_KEY, secret),
                               bytesParam(OSSL_KDF_PARAM_SALT, salt),
                               bytesParam(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  std::string key(bytes, '\0');
  TY_CHECK(EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(key.data()), bytes,
                          params) == 1,
           "a key of at most 8160 bytes can be derived");
  return key;
}

}  // namespace trainyard
