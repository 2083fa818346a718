// How gradients become versions of a shard's chunks: all that differs between the update modes. A
// shard has one of these for good, which makes its chunks.
//
// StepUpdates: mode Sync, where versions are steps that all ranks take, or those that have a place
// where there are backup workers (shard_steps.cc, shard_clip.cc).
// PushUpdates: modes Async and BoundedDelay, where each push counts by itself (shard_async.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/ps/shard.h"

namespace trainyard::runtime::ps {

// Called with the epoch's mutex held and, where there is a chunk, with that chunk's. What is said
// of a chunk is of its own ones unless it is called a replica.
class Shard::Updates {
 public:
  using Header = v1::ChunkRequestHeader;
  using Answers = std::vector<ChunkAnswer>;

  explicit Updates(Shard& shard) : shard_(shard) {}
  virtual ~Updates() = default;
  Updates(const Updates&) = delete;
  Updates& operator=(const Updates&) = delete;

  // Also of a replica.
  virtual std::unique_ptr<ChunkState> makeChunk(const Chunk& chunk) const = 0;
  // How far a chunk or a replica is, to be compared with the other.
  virtual std::int64_t pointOf(const ChunkState& chunk) const = 0;

  virtual void onPull(ChunkState& chunk, const Header& header, CallId call, Answers& out) = 0;
  virtual void onPush(ChunkState& chunk, const Header& header,
                      std::unique_ptr<GradientPayload> payload, CallId call, TimePoint now,
                      Answers& out) = 0;
  virtual void onCancelled(ChunkState& /*chunk*/, CallId /*call*/) {}
  // With clipping: updates one chunk that has waited for the norm; false: there is none.
  virtual bool updateHeld(Answers& /*out*/) { return false; }

  // Whether the chunk waits for its replica to say that it has this.
  virtual bool isNewest(const ChunkState& chunk, const Header& update) const = 0;
  // It has.
  virtual void onReplicated(ChunkState& chunk, Answers& out) = 0;
  // False: the replica lacks something before it.
  virtual bool takeAsReplica(ChunkState& replica, const Header& header,
                             std::unique_ptr<GradientPayload> payload) = 0;

  // What the epoch leaves of the step in progress. Its callers have been told.
  virtual void seal(ChunkState& chunk, Answers& out) = 0;
  virtual bool canStart(std::int64_t version, std::int64_t first_step) const = 0;
  virtual void open(ChunkState& chunk) = 0;
  // A snapshot of the job's last version is taken without being asked.
  virtual bool armsLast(bool restored) const = 0;

  // The step in progress: for who is to hold the chunk; from who has held it; from a replica that
  // is here; none, of a chunk that is loaded.
  virtual void give(const ChunkState& chunk, GivenChunk& given) const = 0;
  virtual void takeOver(ChunkState& chunk, GivenChunk& given) = 0;
  virtual void adopt(const ChunkState& replica, ChunkState& chunk) = 0;
  virtual void load(ChunkState& chunk) = 0;
  virtual void fillState(v1::ShardState& /*state*/) const {}

  // A snapshot of this version has been complete before. With the snapshots' mutex held.
  virtual bool hasCaptured(std::int64_t /*version*/) const { return false; }
  // No push is under way, and the coordinator calls what is in all chunks by this version.
  virtual void settle(std::int64_t /*version*/) {}
  virtual bool canCapture(const ChunkState& chunk) const = 0;

 protected:
  Shard& shard_;
};

class Shard::StepUpdates final : public Shard::Updates {
 public:
  using Updates::Updates;

  std::unique_ptr<ChunkState> makeChunk(const Chunk& chunk) const override;
  std::int64_t pointOf(const ChunkState& chunk) const override { return chunk.version; }
  void onPull(ChunkState& chunk, const Header& header, CallId call, Answers& out) override;
  void onPush(ChunkState& chunk, const Header& header, std::unique_ptr<GradientPayload> payload,
              CallId call, TimePoint now, Answers& out) override;
  bool updateHeld(Answers& out) override;
  bool isNewest(const ChunkState& chunk, const Header& update) const override {
    return update.step() == chunk.version - 1;
  }
  void onReplicated(ChunkState& chunk, Answers& out) override { tell(chunk, out); }
  bool takeAsReplica(ChunkState& replica, const Header& header,
                     std::unique_ptr<GradientPayload> payload) override;
  void seal(ChunkState& chunk, Answers& /*out*/) override { chunk.resetStep(0); }
  bool canStart(std::int64_t version, std::int64_t first_step) const override {
    return version == first_step || version == first_step + 1;
  }
  void open(ChunkState& chunk) override { chunk.resetStep(quorum(chunk)); }
  bool armsLast(bool restored) const override;
  void give(const ChunkState& /*chunk*/, GivenChunk& /*given*/) const override {}
  void takeOver(ChunkState& chunk, GivenChunk& /*given*/) override { chunk.resetStep(0); }
  void adopt(const ChunkState& /*replica*/, ChunkState& chunk) override { chunk.resetStep(0); }
  void load(ChunkState& chunk) override { chunk.resetStep(0); }
  bool canCapture(const ChunkState& chunk) const override { return !chunk.unconfirmed; }

 private:
  int quorum(const ChunkState& chunk) const;
  std::string strangerOf(const ChunkState& chunk, const Header& header) const;
  std::optional<std::uint32_t> partOf(const ChunkState& chunk, const Header& header) const;
  void park(ChunkState& chunk, const Header& header, CallId call, TimePoint now, Answers& out);
  void finishStep(ChunkState& chunk, Answers& out);
  void holdStep(ChunkState& chunk, Answers& out);
  void becomeNext(ChunkState& chunk, Answers& out);
  void announce(ChunkState& chunk);
  void tell(ChunkState& chunk, Answers& out);
};

class Shard::PushUpdates final : public Shard::Updates {
 public:
  using Updates::Updates;

  std::unique_ptr<ChunkState> makeChunk(const Chunk& chunk) const override;
  std::int64_t pointOf(const ChunkState& chunk) const override;
  void onPull(ChunkState& chunk, const Header& header, CallId call, Answers& out) override;
  void onPush(ChunkState& chunk, const Header& header, std::unique_ptr<GradientPayload> payload,
              CallId call, TimePoint now, Answers& out) override;
  void onCancelled(ChunkState& chunk, CallId call) override;
  bool isNewest(const ChunkState& chunk, const Header& update) const override {
    return update.before() == pointOf(chunk) - 1;
  }
  void onReplicated(ChunkState& chunk, Answers& out) override;
  bool takeAsReplica(ChunkState& replica, const Header& header,
                     std::unique_ptr<GradientPayload> payload) override;
  void seal(ChunkState& chunk, Answers& out) override;
  bool canStart(std::int64_t /*version*/, std::int64_t /*first_step*/) const override {
    return true;
  }
  void open(ChunkState& chunk) override;
  // The coordinator asks, when no push is under way.
  bool armsLast(bool /*restored*/) const override { return false; }
  void give(const ChunkState& chunk, GivenChunk& given) const override;
  void takeOver(ChunkState& chunk, GivenChunk& given) override;
  void adopt(const ChunkState& replica, ChunkState& chunk) override;
  void load(ChunkState& chunk) override;
  void fillState(v1::ShardState& state) const override;
  bool hasCaptured(std::int64_t version) const override { return version <= shard_.captured_; }
  void settle(std::int64_t version) override;
  bool canCapture(const ChunkState& /*chunk*/) const override { return true; }

 private:
  void contribute(PushChunk& chunk, const Header& header, std::unique_ptr<GradientPayload> payload);
  bool updateComplete(ChunkState& chunk, std::int64_t step, Answers& out);
  void announce(ChunkState& chunk, const Header& header, std::int64_t before);
  void applyLater(PushChunk& chunk, Answers& out);
  void settle(ChunkState& chunk, std::int64_t version);
};

}  // namespace trainyard::runtime::ps
