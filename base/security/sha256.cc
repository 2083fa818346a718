#include "base/security/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/core/check.h"
#include "base/process/retry_interrupted.h"
#include "base/process/unique_fd.h"
#include "base/security/openssl_ptr.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr std::size_t kReadBytes = 1 << 18;

using ContextPtr = std::unique_ptr<EVP_MD_CTX, FreeWith<EVP_MD_CTX_free>>;

ContextPtr newContext() {
  ContextPtr context(EVP_MD_CTX_new());
  TY_CHECK(context != nullptr, "OpenSSL has memory for a hash");
  return context;
}

}  // namespace

struct Sha256::Context {
  ContextPtr evp = newContext();
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  TY_CHECK(EVP_DigestInit_ex(context_->evp.get(), EVP_sha256(), nullptr) == 1,
           "OpenSSL provides SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  TY_CHECK(EVP_DigestUpdate(context_->evp.get(), bytes.data(), bytes.size()) == 1,
           "hashing memory cannot fail");
}

void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span(text.data(), text.size())));
}

std::string Sha256::hexDigest() const {
  // Finishing spoils a context, so a copy is finished.
  const ContextPtr copy = newContext();
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TY_CHECK(EVP_MD_CTX_copy_ex(copy.get(), context_->evp.get()) == 1 &&
               EVP_DigestFinal_ex(copy.get(), digest, &size) == 1,
           "finishing a hash cannot fail");
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
}

std::string sha256Hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hexDigest();
}

std::string sha256Hex(std::string_view text) {
  return sha256Hex(std::as_bytes(std::span(text.data(), text.size())));
}

StatusOr<std::string> sha256File(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errnoStatus(errno, fmt::format("{}: open", path));
  Sha256 hash;
  std::vector<std::byte> buffer(kReadBytes);
  for (;;) {
    const ssize_t got =
        retryInterrupted([&] { return ::read(file.get(), buffer.data(), buffer.size()); });
    if (got < 0) return errnoStatus(errno, fmt::format("{}: read", path));
    if (got == 0) return hash.hexDigest();
    hash.update(std::span(buffer).first(static_cast<std::size_t>(got)));
  }
}

}  // namespace trainyard
