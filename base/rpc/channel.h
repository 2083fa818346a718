// How our gRPC channels and servers are set up; written once for all of them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "grpcpp/grpcpp.h"

namespace trainyard {

struct ChannelOptions {
  int max_message_bytes = 64 << 20;  // in both directions
  // Of one attempt to connect, after which calls fail as refused: who has to tell that from silence
  // gives it longer than a call. Less than a busy machine takes to answer would make calls fail
  // that need not.
  Duration connect = std::chrono::seconds(2);
  // A TCP connection of its own even where another channel goes to the same address.
  bool own_connection = false;
  // For who has thousands of them and says little: some 15 KiB less for each that is encrypted.
  bool small = false;
};

// Keepalive that our servers tolerate, and reconnects after at most 2 s: peers are restarted in
// place.
grpc::ChannelArguments channelArguments(const ChannelOptions& options = {});

// `target` is "ip:port", "unix:/path" or "unix-abstract:name". Connects lazily; never fails here.
// Unencrypted: for 127.0.0.1, Unix sockets, and data whose token is checked.
std::shared_ptr<grpc::Channel> openChannel(const std::string& target,
                                           const ChannelOptions& options = {});

// The gRPC target of a Unix socket: "unix:<path>", or "unix-abstract:<name>" for "@<name>", the way
// our programs write a socket without a file.
std::string unixTarget(const std::string& socket);

// The largest request that a server takes, whoever sends it. The largest that we send are
// memberships of thousands of tasks and chunks of 1 MiB; what is larger (all of a chunk, a view) is
// a reply.
inline constexpr int kMaxRequestBytes = 8 << 20;

// What one connection, of whomever, may have of a server.
struct ServerLimits {
  // Calls under way at a time; further ones wait on their client's side. A server that answers none
  // of several calls before the last of them is in must have room for all of them.
  int streams = 128;
  // Memory for what all connections together have sent and nobody has used up. gRPC has a message
  // in memory before it compares its size with the limit and shows it to the server: this is what
  // bounds a stranger. Beyond it connections are slowed down, then calls are ended.
  std::size_t bytes = std::size_t{128} << 20;
};

// Limits of messages, calls and memory; keepalive; and no SO_REUSEPORT: with it two servers on one
// port both start, and each gets some of the calls.
void applyServerDefaults(grpc::ServerBuilder& builder, const ServerLimits& limits = {});

// The end of a call, `timeout` from now.
void setDeadline(grpc::ClientContext& context, Duration timeout);
gpr_timespec deadlineAfter(Duration timeout);

// Starts the server of `builder`, which listens at `address` ("ip:port"; port 0: any). `port` must
// be the int given to AddListeningPort. UNAVAILABLE "<what>: cannot listen at <address>" when the
// address is taken or not ours.
StatusOr<std::unique_ptr<grpc::Server>> startServer(grpc::ServerBuilder& builder,
                                                    const std::string& what,
                                                    const std::string& address, const int& port);

}  // namespace trainyard
