// Owners of OpenSSL's objects.
#pragma once

#include <memory>

#include "openssl/bio.h"
#include "openssl/evp.h"
#include "openssl/x509.h"

namespace trainyard {

// A deleter that calls OpenSSL's own function: std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>.
template <auto kFree>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, OpensslFree<X509_free>>;

}  // namespace trainyard
