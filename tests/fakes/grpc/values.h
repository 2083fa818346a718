// gRPC's values as our code uses them: status, bytes, credentials, options.
#pragma once

#include <grpc/grpc.h>
#include <grpc/grpc_security_constants.h>
#include <grpc/support/time.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace grpc {

enum StatusCode {
  OK = 0,
  CANCELLED = 1,
  UNKNOWN = 2,
  INVALID_ARGUMENT = 3,
  DEADLINE_EXCEEDED = 4,
  NOT_FOUND = 5,
  RESOURCE_EXHAUSTED = 8,
  FAILED_PRECONDITION = 9,
  UNIMPLEMENTED = 12,
  INTERNAL = 13,
  UNAVAILABLE = 14,
  UNAUTHENTICATED = 16,
};

class Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
  static const Status& OK;
  static const Status& CANCELLED;
  bool ok() const { return code_ == StatusCode::OK; }
  StatusCode error_code() const { return code_; }
  std::string error_message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::OK;
  std::string message_;
};

// Bytes that all copies share; given back when the last is gone.
class Slice final {
 public:
  Slice() = default;
  Slice(const std::string& text);
  Slice(void* bytes, std::size_t size, void (*destroy)(void*), void* user_data)
      : owner_(user_data, destroy), begin_(static_cast<const std::uint8_t*>(bytes)), size_(size) {}
  const std::uint8_t* begin() const { return begin_; }
  const std::uint8_t* end() const { return begin_ + size_; }
  std::size_t size() const { return size_; }

 private:
  std::shared_ptr<void> owner_;
  const std::uint8_t* begin_ = nullptr;
  std::size_t size_ = 0;
};

class ByteBuffer final {
 public:
  ByteBuffer() = default;
  ByteBuffer(const Slice* slices, std::size_t count)
      : valid_(true), slices_(slices, slices + count) {}
  Status Dump(std::vector<Slice>* slices) const;
  void Clear() { *this = ByteBuffer(); }
  void Swap(ByteBuffer* other) { std::swap(*this, *other); }
  bool Valid() const { return valid_; }

 private:
  bool valid_ = false;
  std::vector<Slice> slices_;
};

using string_ref = std::string_view;

// What a fake has no use for is taken and forgotten.
class ChannelArguments {
 public:
  void SetInt(const std::string&, int) {}
  void SetMaxReceiveMessageSize(int) {}
  void SetMaxSendMessageSize(int) {}
  void SetSslTargetNameOverride(const std::string&) {}
};

// PEM; without a ca: unencrypted.
struct Credentials {
  std::string ca;
  std::string cert;
  bool secure() const { return !ca.empty(); }
  // Whether `other` has a certificate that our ca has signed.
  bool trust(const Credentials& other) const;
};
using ChannelCredentials = Credentials;
using ServerCredentials = Credentials;

struct SslCredentialsOptions {
  std::string pem_root_certs;
  std::string pem_private_key;
  std::string pem_cert_chain;
};
struct SslServerCredentialsOptions {
  struct PemKeyCertPair {
    std::string private_key;
    std::string cert_chain;
  };
  explicit SslServerCredentialsOptions(grpc_ssl_client_certificate_request_type) {}
  std::string pem_root_certs;
  std::vector<PemKeyCertPair> pem_key_cert_pairs;
};
std::shared_ptr<ChannelCredentials> InsecureChannelCredentials();
std::shared_ptr<ChannelCredentials> SslCredentials(const SslCredentialsOptions& options);
std::shared_ptr<ServerCredentials> InsecureServerCredentials();
std::shared_ptr<ServerCredentials> SslServerCredentials(const SslServerCredentialsOptions& options);

}  // namespace grpc
