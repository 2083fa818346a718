// gRPC between parties that prove to each other who they are (mutual TLS).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/rpc/channel.h"
#include "base/security/job_keys.h"

namespace trainyard {

// As openChannel(), encrypted, to a server that must prove to be `server_name`; we prove to be
// `self`.
std::shared_ptr<grpc::Channel> openSecureChannel(const std::string& target, const TlsIdentity& self,
                                                 std::string_view server_name,
                                                 const ChannelOptions& options = {});

// The same for several channels, which share what `self` costs: some 60 KB once it is read.
std::shared_ptr<grpc::ChannelCredentials> secureClient(const TlsIdentity& self);
std::shared_ptr<grpc::Channel> openSecureChannel(
    const std::string& target, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    std::string_view server_name, const ChannelOptions& options = {});

// For a server that proves to be `self`, and takes only clients that its ca has signed.
std::shared_ptr<grpc::ServerCredentials> secureServer(const TlsIdentity& self);

}  // namespace trainyard
