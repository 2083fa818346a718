#include "base/security/job_keys.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

using CertPtr = std::unique_ptr<X509, void (*)(X509*)>;

CertPtr read(const std::string& pem) {
  BIO* const bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  CertPtr cert(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr), X509_free);
  BIO_free(bio);
  return cert;
}

// Whether `cert` is signed by `ca`, for `purpose`, and valid now.
bool verifies(const std::string& cert_pem, const std::string& ca_pem, int purpose) {
  const CertPtr cert = read(cert_pem), ca = read(ca_pem);
  X509_STORE* const store = X509_STORE_new();
  X509_STORE_add_cert(store, ca.get());
  X509_STORE_CTX* const context = X509_STORE_CTX_new();
  X509_STORE_CTX_init(context, store, cert.get(), nullptr);
  X509_STORE_CTX_set_purpose(context, purpose);
  const bool good = X509_verify_cert(context) == 1;
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  return good;
}

constexpr const char* kRoot = "a root secret of thirty-two bytes";
constexpr const char* kUid = "0b7e4a3c-5a52-4e55-9a53-3f2f9f0a2b11";

TEST(JobKeys, AreDerivedAgainAlike) {
  const JobKeys a = deriveJobKeys(kRoot, kUid), b = deriveJobKeys(kRoot, kUid);
  EXPECT_EQ(a.token, b.token);
  EXPECT_EQ(a.token.size(), 64u);
  EXPECT_EQ(a.task.cert, b.task.cert);
  EXPECT_EQ(a.task.key, b.task.key);
  EXPECT_EQ(a.client.cert, b.client.cert);
  EXPECT_EQ(a.task.ca, a.client.ca);
}

TEST(JobKeys, EachSideProvesWhatItIsAndNothingElse) {
  const JobKeys keys = deriveJobKeys(kRoot, kUid);
  EXPECT_TRUE(verifies(keys.task.cert, keys.task.ca, X509_PURPOSE_SSL_SERVER));
  EXPECT_TRUE(verifies(keys.client.cert, keys.client.ca, X509_PURPOSE_SSL_CLIENT));
  EXPECT_FALSE(verifies(keys.task.cert, keys.task.ca, X509_PURPOSE_SSL_CLIENT));
  EXPECT_FALSE(verifies(keys.client.cert, keys.client.ca, X509_PURPOSE_SSL_SERVER));
  EXPECT_EQ(X509_check_host(read(keys.task.cert).get(), kTaskServerName.data(),
                            kTaskServerName.size(), 0, nullptr),
            1);
}

TEST(RuntimeKeys, FollowFromTheToken) {
  const RuntimeKeys a = deriveRuntimeKeys("token"), b = deriveRuntimeKeys("token");
  EXPECT_EQ(a.control.ca, b.control.ca);
  EXPECT_EQ(a.control.cert, b.control.cert);
  EXPECT_EQ(a.control.key, b.control.key);
  EXPECT_EQ(a.data, b.data);
  for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT})
    EXPECT_TRUE(verifies(a.control.cert, b.control.ca, purpose));
  EXPECT_EQ(X509_check_host(read(a.control.cert).get(), kRuntimeServerName.data(),
                            kRuntimeServerName.size(), 0, nullptr),
            1);
  const RuntimeKeys other = deriveRuntimeKeys("another token");
  EXPECT_FALSE(verifies(a.control.cert, other.control.ca, X509_PURPOSE_SSL_CLIENT));
  EXPECT_NE(a.data, other.data);
}

TEST(RuntimeKeys, EachOpensItsOwnOnly) {
  const JobKeys job = deriveJobKeys(kRoot, kUid);
  const RuntimeKeys keys = deriveRuntimeKeys(job.token);
  EXPECT_EQ(keys.data.size(), 64u);
  EXPECT_NE(keys.data, job.token);
  // Agents know their operator by another authority, and it is none to a runtime.
  EXPECT_FALSE(verifies(keys.control.cert, job.task.ca, X509_PURPOSE_SSL_CLIENT));
  EXPECT_FALSE(verifies(job.client.cert, keys.control.ca, X509_PURPOSE_SSL_CLIENT));
  // Whoever takes the key of data for a token gets other keys.
  EXPECT_FALSE(verifies(deriveRuntimeKeys(keys.data).control.cert, keys.control.ca,
                        X509_PURPOSE_SSL_CLIENT));
}

TEST(ProgramSecret, FollowsFromTheTokenAndIsNoneOfOurKeys) {
  const std::string secret = deriveProgramSecret("token");
  EXPECT_EQ(secret.size(), 64u);
  EXPECT_EQ(secret.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(secret, deriveProgramSecret("token"));
  EXPECT_NE(secret, deriveProgramSecret("another token"));
  EXPECT_NE(secret, deriveRuntimeKeys("token").data);
}

TEST(JobKeys, OtherJobsAndRootsHaveOthers) {
  const JobKeys keys = deriveJobKeys(kRoot, kUid);
  for (const JobKeys& other :
       {deriveJobKeys(kRoot, "another uid"), deriveJobKeys("another root secret", kUid)}) {
    EXPECT_NE(keys.token, other.token);
    EXPECT_FALSE(verifies(keys.task.cert, other.task.ca, X509_PURPOSE_SSL_SERVER));
    EXPECT_FALSE(verifies(other.client.cert, keys.task.ca, X509_PURPOSE_SSL_CLIENT));
  }
  EXPECT_NE(rootId(kRoot), rootId("another root secret"));
  EXPECT_EQ(rootId(kRoot).size(), 16u);
}

}  // namespace
}  // namespace trainyard
