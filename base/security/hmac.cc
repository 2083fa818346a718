#include "base/security/hmac.h"

#include "base/core/check.h"
#include "openssl/evp.h"
#include "openssl/hmac.h"

namespace trainyard {

std::string hmacSha256(std::string_view key, std::string_view text) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  const unsigned char* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(digest.data()), &size);
  TY_CHECK(done != nullptr, "HMAC of memory does not fail");
  digest.resize(size);
  return digest;
}

}  // namespace trainyard
