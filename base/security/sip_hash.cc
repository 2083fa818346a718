#include "base/security/sip_hash.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>

#include "base/core/check.h"

namespace trainyard {
namespace {

// Looked up once: that takes longer than a hash.
EVP_MAC* algorithm() {
  static EVP_MAC* const found = EVP_MAC_fetch(nullptr, "SIPHASH", nullptr);
  return found;
}

}  // namespace

void SipHash::Free::operator()(evp_mac_ctx_st* context) const {
  EVP_MAC_CTX_free(context);
}

SipHash::SipHash(std::string_view key) : context_(EVP_MAC_CTX_new(algorithm())) {
  TY_CHECK(context_ != nullptr, "OpenSSL provides SipHash");
  TY_CHECK(key.size() == kKeyBytes, "a key of SipHash");
  std::copy(key.begin(), key.end(), key_.begin());
}

SipHash::~SipHash() = default;
SipHash::SipHash(SipHash&&) noexcept = default;

std::uint64_t SipHash::of(std::initializer_list<std::string_view> parts) {
  std::size_t size = sizeof(std::uint64_t);
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                               OSSL_PARAM_construct_end()};
  bool done = EVP_MAC_init(context_.get(), key_.data(), key_.size(), params) == 1;
  for (const std::string_view part : parts) {
    done =
        done && EVP_MAC_update(context_.get(), reinterpret_cast<const unsigned char*>(part.data()),
                               part.size()) == 1;
  }
  std::uint64_t hash = 0;
  done = done && EVP_MAC_final(context_.get(), reinterpret_cast<unsigned char*>(&hash), &size,
                               sizeof(hash)) == 1;
  TY_CHECK(done, "SipHash fails for no message");
  return hash;
}

}  // namespace trainyard
