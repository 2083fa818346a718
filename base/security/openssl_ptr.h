// Owners of OpenSSL's objects.
#pragma once

#include <memory>

#include "base/core/free_with.h"
#include "openssl/bio.h"
#include "openssl/evp.h"
#include "openssl/x509.h"

namespace trainyard {

using BioPtr = std::unique_ptr<BIO, FreeWith<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, FreeWith<X509_free>>;

}  // namespace trainyard
