#include "base/rpc/secure_channel.h"

namespace trainyard {

std::shared_ptr<grpc::ChannelCredentials> secureClient(const TlsIdentity& self) {
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = self.ca;
  ssl.pem_cert_chain = self.cert;
  ssl.pem_private_key = self.key;
  return grpc::SslCredentials(ssl);
}

std::shared_ptr<grpc::Channel> openSecureChannel(
    const std::string& target, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    std::string_view server_name, const ChannelOptions& options) {
  grpc::ChannelArguments args = channelArguments(options);
  args.SetSslTargetNameOverride(std::string(server_name));
  return grpc::CreateCustomChannel(target, credentials, args);
}

std::shared_ptr<grpc::Channel> openSecureChannel(const std::string& target, const TlsIdentity& self,
                                                 std::string_view server_name,
                                                 const ChannelOptions& options) {
  return openSecureChannel(target, secureClient(self), server_name, options);
}

std::shared_ptr<grpc::ServerCredentials> secureServer(const TlsIdentity& self) {
  grpc::SslServerCredentialsOptions ssl(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_root_certs = self.ca;
  ssl.pem_key_cert_pairs.push_back({self.key, self.cert});
  return grpc::SslServerCredentials(ssl);
}

grpc::Status checkPeer(const grpc::ServerContextBase& context) {
  const auto peer = context.auth_context();
  if (peer != nullptr && peer->IsPeerAuthenticated()) return grpc::Status::OK;
  return {grpc::StatusCode::UNAUTHENTICATED, "the connection proves nothing about its client"};
}

// gRPC has no code of its own for it: a call whose connection cannot be made ends by the
// connection's last error, which says what OpenSSL did not accept.
bool isStranger(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         status.error_message().find("SSL_ERROR_SSL") != std::string::npos;
}

}  // namespace trainyard
