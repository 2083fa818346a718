#include "base/rpc/channel.h"

#include "fmt/format.h"

namespace trainyard {
namespace {

constexpr int kKeepaliveMs = 20'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int kMinPingIntervalMs = 10'000;  // that servers accept; below it: GOAWAY too_many_pings
constexpr int kMinReconnectMs = 100;
constexpr int kMaxReconnectMs = 2'000;
constexpr int kSmallFrame = 1024;  // the least that gRPC takes

}  // namespace

grpc::ChannelArguments channelArguments(const ChannelOptions& options) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(options.max_message_bytes);
  args.SetMaxSendMessageSize(options.max_message_bytes);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinReconnectMs);
  // In spite of its name the time that an attempt may take.
  const auto connect = std::chrono::duration_cast<std::chrono::milliseconds>(options.connect);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(connect.count()));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  args.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1'000);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // peers are in the cluster or on this machine
  if (options.own_connection) args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (options.small) {
    args.SetInt(GRPC_ARG_TSI_MAX_FRAME_SIZE, kSmallFrame);
    args.SetInt(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0);
    args.SetInt(GRPC_ARG_ENABLE_CHANNELZ, 0);
  }
  return args;
}

std::shared_ptr<grpc::Channel> openChannel(const std::string& target,
                                           const ChannelOptions& options) {
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                   channelArguments(options));
}

std::string unixTarget(const std::string& socket) {
  if (!socket.empty() && socket[0] == '@') return "unix-abstract:" + socket.substr(1);
  return "unix:" + socket;
}

void applyServerDefaults(grpc::ServerBuilder& builder, const ServerLimits& limits) {
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.SetMaxSendMessageSize(ChannelOptions().max_message_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.streams);
  grpc::ResourceQuota quota("server");
  quota.Resize(limits.bytes);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
}

gpr_timespec deadlineAfter(Duration timeout) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(timeout.count(), GPR_TIMESPAN));
}

void setDeadline(grpc::ClientContext& context, Duration timeout) {
  context.set_deadline(deadlineAfter(timeout));
}

StatusOr<std::unique_ptr<grpc::Server>> startServer(grpc::ServerBuilder& builder,
                                                    const std::string& what,
                                                    const std::string& address, const int& port) {
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server != nullptr && port > 0) return server;
  if (server != nullptr) server->Shutdown();
  return absl::UnavailableError(fmt::format(
      "{}: cannot listen at {}: the address is taken or not one of this machine", what, address));
}

}  // namespace trainyard
