// Payload bytes by peer since the process started.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "trainyard/v1/agent.pb.h"

namespace trainyard::runtime::ps {

// Thread-safe.
class Traffic {
 public:
  explicit Traffic(v1::Role peers) : role_(peers) {}
  void received(std::uint32_t peer, std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    bytes_[peer].received += bytes;
  }
  void transmitted(std::uint32_t peer, std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    bytes_[peer].transmitted += bytes;
  }
  void fill(v1::RuntimeReport& report) const {
    std::lock_guard lock(mutex_);
    for (const auto& [peer, bytes] : bytes_) {
      v1::PeerTraffic* traffic = report.add_traffic();
      traffic->mutable_peer()->set_role(role_);
      traffic->mutable_peer()->set_index(peer);
      traffic->set_received_bytes(bytes.received);
      traffic->set_transmitted_bytes(bytes.transmitted);
    }
  }

 private:
  struct Bytes {
    std::uint64_t received = 0;
    std::uint64_t transmitted = 0;
  };
  const v1::Role role_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, Bytes> bytes_;
};

}  // namespace trainyard::runtime::ps
