#include "base/security/constant_time.h"

#include <openssl/crypto.h>

namespace trainyard {

bool equalInConstantTime(std::string_view a, std::string_view b) {
  // The length is no secret.
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace trainyard
