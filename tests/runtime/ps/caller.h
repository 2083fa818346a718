// Workers of a parameter server's as the tests of both ends need them: with a client, and by
// frames.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/ps/chunk_client.h"
#include "runtime/ps/protocol.h"
#include "tests/runtime/lanes/raw_lane.h"
#include "tests/runtime/ps/rpc_bench.h"

namespace trainyard::runtime::ps {

inline constexpr Duration kLimit = lanes::kLimit;

// A client that collects what it is told, by attempt.
class Caller {
 public:
  struct Reply {
    Status status;
    v1::ChunkReplyHeader header;
    std::vector<float> values;
    std::optional<lanes::Pace> pace = {};
  };
  explicit Caller(const PsServer& server, const std::string& key = keys().data,
                  Duration limit = kLimit, bool near = false,
                  std::shared_ptr<const stream::Encryption> tls = nullptr,
                  ElementType wire = ElementType::kFloat32)
      : client_({{{key, std::move(tls)}, workerEnd()},
                 limit,
                 1,
                 [] { return SharedPool::create(320, 5); },
                 true,
                 wire},
                events()) {
    client_.setAddress(0, server.address, near);
  }
  std::uint64_t push(std::uint32_t rank, float value, std::int64_t step = 0,
                     std::uint32_t chunk = 0) {
    v1::ChunkRequestHeader h;
    h.set_step(step);
    h.set_chunk(chunk);
    h.set_protocol(protocol);
    h.set_job_uid(kJob);
    *h.mutable_server() = incarnation(1, server_start);
    h.set_epoch(1);
    h.set_worker(rank);
    h.set_rank(rank);
    h.set_worker(rank);
    h.set_samples(1);
    h.set_receipt(true);
    auto values = std::make_shared<std::vector<float>>(8, value);
    const auto sent = client_.send(0, ++attempt_, h, {{std::span<const float>(*values), values}});
    EXPECT_TRUE(sent.ok()) << sent.status();
    return attempt_;
  }
  bool received(std::uint64_t attempt) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLimit, [&] { return received_.count(attempt) > 0; });
  }
  Reply reply(std::uint64_t attempt) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [&] { return replies_.count(attempt) > 0; }));
    return replies_[attempt];
  }
  bool replied(std::uint64_t attempt) {
    std::lock_guard lock(mutex_);
    return replies_.count(attempt) > 0;
  }
  ChunkClient& client() { return client_; }
  std::uint32_t protocol = kChunkProtocol;
  std::uint32_t server_start = 1;

 private:
  ChunkClient::Events events() {
    ChunkClient::Events e;
    e.received = [this](std::uint32_t, std::uint64_t attempt) {
      std::lock_guard lock(mutex_);
      received_[attempt] = true;
      changed_.notify_all();
    };
    e.replied = [this](const ChunkClient::Reply& replied) {
      std::lock_guard lock(mutex_);
      if (replied.bytes == 0) {
        note(replied);
        return std::vector<std::span<float>>();
      }
      std::vector<float>& values = landing_[replied.attempt];
      values.assign(replied.elements, -77.0f);
      return std::vector<std::span<float>>{values};
    };
    e.stored = [this](const ChunkClient::Reply& replied) {
      std::lock_guard lock(mutex_);
      note(replied);
      replies_[replied.attempt].values = landing_[replied.attempt];
    };
    e.cut = [this](const ChunkClient::Reply& replied, const Status& why) {
      std::lock_guard lock(mutex_);
      note(replied);
      replies_[replied.attempt].status = why;
      replies_[replied.attempt].values = landing_[replied.attempt];
    };
    return e;
  }
  void note(const ChunkClient::Reply& replied) {
    replies_[replied.attempt] = {replied.status, replied.header, {}, replied.pace};
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, bool> received_;
  std::map<std::uint64_t, Reply> replies_;
  std::map<std::uint64_t, std::vector<float>> landing_;
  std::uint64_t attempt_ = 0;
  ChunkClient client_;
};

// A worker that speaks frame by frame.
class RawWorker {
 public:
  explicit RawWorker(const PsServer& server) {
    lanes::Intro intro{workerEnd(), {v1::ROLE_PS, 0, incarnation(1, 1)}, 0};
    auto opened = lanes::RawLane::open(server.port(), keys().data, intro);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) lane_.emplace(*std::move(opened));
  }
  StatusOr<lanes::RawLane::Frame> ask(lanes::Topic topic, const std::string& header,
                                      const std::string& body = "") {
    lane_->send(lanes::FrameKind::kRequest, topic, ++number_, header, body);
    return lane_->receive();
  }
  StatusOr<lanes::RawLane::Frame> ask(const v1::ChunkRequestHeader& header,
                                      const std::string& body = "") {
    return ask(lanes::Topic::kChunk, header.SerializeAsString(), body);
  }

 private:
  std::optional<lanes::RawLane> lane_;
  std::uint64_t number_ = 0;
};

inline v1::ChunkRequestHeader chunkHeader() {
  v1::ChunkRequestHeader header;
  header.set_protocol(kChunkProtocol);
  header.set_job_uid(kJob);
  *header.mutable_server() = incarnation(1, 1);
  header.set_epoch(1);
  header.set_samples(1);
  return header;
}

}  // namespace trainyard::runtime::ps
