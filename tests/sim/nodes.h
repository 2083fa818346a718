// The simulated processes.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/ps/row_link.h"
#include "tests/sim/world.h"

namespace trainyard::sim {

inline bool same(const v1::Incarnation& a, const v1::Incarnation& b) {
  return a.created() == b.created() && a.start() == b.start();
}

class VectorPayload : public runtime::ps::GradientPayload {
 public:
  explicit VectorPayload(std::vector<float> values) : values_(std::move(values)) {}
  std::size_t sizeBytes() const override { return values_.size() * sizeof(float); }
  void copyTo(std::span<float> out, std::size_t at) const override {
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(at), out.size(), out.begin());
  }
  void addTo(std::span<float> acc, std::size_t at) const override {
    for (std::size_t i = 0; i < acc.size(); ++i) acc[i] += values_[at + i];
  }

 private:
  std::vector<float> values_;
};

struct World::Node {
  virtual ~Node() = default;
  v1::Role role = v1::ROLE_PS;
  std::uint32_t index = 0;
  v1::Incarnation incarnation;
  int calls = 0;  // reports under way
  bool poked = false;
};

// With number kWorkerKeeper it is a part of worker 0's process.
struct World::PsNode : World::Node {
  int number = 0;
  std::unique_ptr<runtime::ps::Shard> shard;
  std::unique_ptr<runtime::ps::PsMachine> machine;
  std::unique_ptr<runtime::Coordinator> coordinator;
  std::map<std::uint64_t, std::function<void(const v1::View&)>> tickets;
  std::map<std::uint64_t, std::function<void(const v1::TakeReply&)>> takes;
  std::uint64_t next_ticket = 1;
  std::map<runtime::ps::CallId, std::function<void(const v1::ChunkReplyHeader&,
                                                   std::shared_ptr<const runtime::ps::Weights>)>>
      calls_in;
  runtime::ps::CallId next_call = 1;
  bool updating = false;              // an update is planned
  v1::EpochInfo epoch;                // the newest that it has begun to prepare
  std::int64_t replicas_fetched = 0;  // the newest epoch for which that has begun
};

struct World::WorkerNode : World::Node {
  std::unique_ptr<runtime::ps::WorkerMachine> machine;
  std::unique_ptr<PsNode> keeper;              // worker 0, where there are replicas
  std::vector<std::vector<float>> weights;     // by chunk
  std::unique_ptr<runtime::ps::RowLink> rows;  // null: no tables
  runtime::RowValues turn_rows;
  // Rows of the turn that are read in it.
  struct Reading {
    std::uint64_t attempt = 0;
    bool done = false;
  };
  bool lacks_rows = false;
  bool void_rows = false;        // nothing that is computed with them may count
  std::vector<Reading> reading;  // by part; empty: nothing is read
  std::uint64_t reads = 0;
  std::optional<runtime::Turn> turn;
  bool computing = false;
  std::int64_t revision = 0;  // of the membership that it was started with
  bool wake_planned = false;
};

}  // namespace trainyard::sim
