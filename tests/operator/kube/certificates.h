// Certificates for tests, made when they are needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace trainyard::control {

struct CertificateAndKey {
  std::string cert;  // PEM
  std::string key;   // PEM
};

// A certificate authority of its own. Not thread-safe.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name);
  ~TestAuthority();

  const std::string& pem() const { return pem_; }
  // For a server under these names; "127.0.0.1" and "::1" are taken as addresses.
  CertificateAndKey server(const std::vector<std::string>& names);
  CertificateAndKey client(const std::string& common_name);

 private:
  struct Parts;
  CertificateAndKey issue(const std::string& common_name, const std::string& usage,
                          const std::string& alt_names);
  std::unique_ptr<Parts> parts_;
  std::string pem_;
  long serial_ = 1;
};

}  // namespace trainyard::control
