// A server of lanes at a port of its own, which sends back what it gets.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/rpc/task_server.h"
#include "base/security/job_keys.h"
#include "gtest/gtest.h"
#include "runtime/lanes/lane_server.h"
#include "runtime/stream/tls_stream.h"
#include "tests/runtime/lanes/raw_lane.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard::runtime::lanes {

inline constexpr char kSecret[] = "what the job's tasks know";

inline v1::Incarnation incarnationOf(std::uint32_t start) {
  v1::Incarnation incarnation;
  incarnation.set_created(1);
  incarnation.set_start(start);
  return incarnation;
}
inline End workerEnd(std::uint32_t index = 0, std::uint32_t start = 1) {
  return {v1::ROLE_WORKER, index, incarnationOf(start)};
}
inline End serverEnd(std::uint32_t start = 1) {
  return {v1::ROLE_PS, 0, incarnationOf(start)};
}

// Answers each request with its own header and body; the answer's header says on which lane.
class Echo final : public Connection::Reader {
 public:
  Echo(Connection& connection, std::uint32_t lane) : connection_(connection), lane_(lane) {}
  Status onHeader(const FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    head_ = head;
    header_ = header;
    body_ = std::make_shared<std::vector<std::byte>>(head.body_bytes);
    body = {*body_};
    return absl::OkStatus();
  }
  Status onFrame() override {
    if (header_ == "end the lane") return absl::DataLossError("as it was asked to");
    connection_.send(FrameKind::kReply, head_.topic, head_.number,
                     header_ + "@" + std::to_string(lane_), {{*body_, body_}});
    return absl::OkStatus();
  }
  void onClosed(const Status&) override {}

 private:
  Connection& connection_;
  const std::uint32_t lane_;
  FrameHead head_;
  std::string header_;
  std::shared_ptr<std::vector<std::byte>> body_;
};

class LaneBench {
 public:
  // Takes who means start 1 of the server. `port` 0: any.
  explicit LaneBench(int lanes, std::shared_ptr<const stream::Encryption> tls = nullptr,
                     std::uint16_t port = 0) {
    LaneServer::Options options;
    options.lanes = lanes;
    options.secrets = {kSecret, std::move(tls)};
    options.judge = [](const Intro& intro) {
      return intro.to.incarnation.start() == 1 ? "" : "another one is meant";
    };
    options.open = [](Connection& connection, const Intro& intro) {
      return std::make_unique<Echo>(connection, intro.lane);
    };
    auto server = LaneServer::start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto listener =
        TaskServer::start({.what = "lanes", .port = port, .identity = keys().control}, {&beside_},
                          [this](UniqueFd socket) { server_->take(std::move(socket)); });
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  static const RuntimeKeys& keys() {
    static const RuntimeKeys keys = deriveRuntimeKeys("the-token");
    return keys;
  }
  int port() const { return listener_->port(); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port()); }

 private:
  v1::ShardTables::CallbackService beside_;  // a port has something for gRPC as well
  std::unique_ptr<LaneServer> server_;
  std::unique_ptr<TaskServer> listener_;  // before the server, which it hands connections to
};

}  // namespace trainyard::runtime::lanes
