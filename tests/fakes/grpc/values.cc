#include "tests/fakes/grpc/values.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include "base/security/openssl_ptr.h"

namespace grpc {
namespace {

trainyard::X509Ptr parse(const std::string& pem) {
  const trainyard::BioPtr bytes(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  return trainyard::X509Ptr(PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr));
}

const Status kOk;
const Status kCancelled(StatusCode::CANCELLED, "CANCELLED");

}  // namespace

const Status& Status::OK = kOk;
const Status& Status::CANCELLED = kCancelled;

Slice::Slice(const std::string& text) {
  const auto copy = std::make_shared<std::string>(text);
  begin_ = reinterpret_cast<const std::uint8_t*>(copy->data());
  size_ = copy->size();
  owner_ = copy;
}

Status ByteBuffer::Dump(std::vector<Slice>* slices) const {
  if (!valid_) return {StatusCode::FAILED_PRECONDITION, "Buffer not initialized"};
  *slices = slices_;
  return Status::OK;
}

bool Credentials::trust(const Credentials& other) const {
  const trainyard::X509Ptr ours = parse(ca);
  const trainyard::X509Ptr theirs = parse(other.cert);
  return ours != nullptr && theirs != nullptr &&
         X509_verify(theirs.get(), X509_get0_pubkey(ours.get())) == 1;
}

std::shared_ptr<ChannelCredentials> InsecureChannelCredentials() {
  return std::make_shared<Credentials>();
}
std::shared_ptr<ChannelCredentials> SslCredentials(const SslCredentialsOptions& options) {
  return std::make_shared<Credentials>(Credentials{options.pem_root_certs, options.pem_cert_chain});
}
std::shared_ptr<ServerCredentials> InsecureServerCredentials() {
  return std::make_shared<Credentials>();
}
std::shared_ptr<ServerCredentials> SslServerCredentials(
    const SslServerCredentialsOptions& options) {
  return std::make_shared<Credentials>(
      Credentials{options.pem_root_certs, options.pem_key_cert_pairs.at(0).cert_chain});
}

}  // namespace grpc
