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

// OK where the client of this call has proved who it is, else UNAUTHENTICATED. For services that
// must not be reached otherwise, whatever server they were registered with.
grpc::Status checkPeer(const grpc::ServerContextBase& context);

// Whether a call failed because the server is not one of those whose authority we know: it has
// answered, but could not prove it. A server that is not there, or ends, is none.
bool isStranger(const grpc::Status& status);

}  // namespace trainyard
