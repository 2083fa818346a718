// A model by hand, gradients that say what was done to them, and short ways to write requests.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/ps/shard.h"

namespace trainyard::runtime::ps {

inline constexpr char kJob[] = "uid-1";
inline constexpr TimePoint kStart{std::chrono::hours(1)};

inline v1::Incarnation incarnation(std::uint32_t created, std::uint32_t start) {
  v1::Incarnation i;
  i.set_created(created);
  i.set_start(start);
  return i;
}

// Writes down what is done to it.
class LoggedPayload : public GradientPayload {
 public:
  // A copy of the values.
  LoggedPayload(std::span<const float> values, std::string name = "",
                std::vector<std::string>* log = nullptr)
      : values_(values.begin(), values.end()), name_(std::move(name)), log_(log) {}
  std::size_t sizeBytes() const override { return values_.size() * sizeof(float); }
  void copyTo(std::span<float> out, std::size_t at) const override {
    note("copy");
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(at), out.size(), out.begin());
  }
  void addTo(std::span<float> acc, std::size_t at) const override {
    note("add");
    for (std::size_t i = 0; i < acc.size(); ++i) acc[i] += values_[at + i];
  }

 private:
  void note(const char* what) const {
    if (log_ != nullptr) log_->push_back(fmt::format("{} {}", what, name_));
  }
  const std::vector<float> values_;
  const std::string name_;
  std::vector<std::string>* const log_;
};

// All that it says, to be compared.
inline std::string textOf(const GivenChunk& given) {
  std::string text = fmt::format("{} {}", given.version, given.record.SerializeAsString());
  const auto add = [&](const char* name, std::span<const float> array) {
    text += fmt::format(" {}: ", name);
    text.append(reinterpret_cast<const char*>(array.data()), array.size() * sizeof(float));
  };
  if (given.weights != nullptr) add("weights", *given.weights);
  if (given.previous != nullptr) add("previous", *given.previous);
  for (const std::vector<float>& slot : given.slots) add("slot", slot);
  if (given.sum != nullptr) add("sum", *given.sum);
  return text;
}

inline Variable floats(const std::string& name, std::int64_t elements) {
  Variable v;
  v.name = name;
  v.shape = {elements};
  return v;
}

// ps-0 holds chunk 0 (a[0:4] and b[0:2]) and chunk 2 (d[0:2], the last), ps-1 chunk 1 (c[0:3]).
inline Placement smallPlacement() {
  Placement p;
  p.num_ps = 2;
  p.variables = {floats("a", 4), floats("b", 2), floats("c", 3), floats("d", 2)};
  p.chunks = {{0, 0, 6, {{0, 0, 4}, {1, 0, 2}}}, {1, 1, 3, {{2, 0, 3}}}, {2, 0, 2, {{3, 0, 2}}}};
  return p;
}

// Plain descent with rate 1: new = old - mean gradient.
inline v1::OptimizerSpec descent() {
  v1::OptimizerSpec spec;
  spec.set_name("SGD");
  spec.set_learning_rate(1);
  return spec;
}

inline std::unique_ptr<Optimizer> make(const v1::OptimizerSpec& spec) {
  auto made = makeOptimizer(spec);
  EXPECT_TRUE(made.ok()) << made.status();
  return std::move(*made);
}

// Steps of one sample for each rank.
inline StepPlan planFor(std::int64_t first_step, int ranks, std::int64_t steps = 100) {
  StepPlan plan;
  plan.first_step = first_step;
  plan.first_position = first_step * ranks;
  plan.step_samples = ranks;
  plan.steps = steps;
  plan.ranks = ranks;
  return plan;
}

// A shard of ps-0 with all weights zero at version 0 once opened.
struct ShardBench {
  explicit ShardBench(const std::function<void(ShardConfig&)>& change = {},
                      v1::OptimizerSpec spec = descent())
      : placement(smallPlacement()),
        optimizer(make(spec)),
        shard(with(change), placement, *optimizer, LearningRate(spec)) {}
  static ShardConfig with(const std::function<void(ShardConfig&)>& change) {
    ShardConfig config;
    config.job_uid = kJob;
    config.self = incarnation(1, 1);
    if (change) change(config);
    return config;
  }
  void load(std::int64_t version = 0) {
    for (const Chunk& chunk : placement.chunks) {
      if (chunk.ps != 0) continue;
      const auto n = static_cast<std::size_t>(chunk.elements);
      std::vector<std::vector<float>> slots(optimizer->slots().size(), std::vector<float>(n, 0.0f));
      shard.load(chunk.id, version, std::vector<float>(n, 0.0f), slots);
    }
  }
  void open(int ranks, bool fresh = false) { open(planFor(0, ranks), fresh); }
  void open(const StepPlan& plan, bool fresh = false) {
    shard.seal(1, out);
    load(plan.first_step);
    const Status opened = shard.open(1, plan, fresh, !fresh);
    ASSERT_TRUE(opened.ok()) << opened;
    epoch = 1;
  }
  v1::ChunkRequestHeader header(std::uint32_t chunk, std::int64_t step, std::uint32_t rank) const {
    v1::ChunkRequestHeader h;
    h.set_protocol(1);
    h.set_job_uid(kJob);
    *h.mutable_server() = incarnation(1, 1);
    h.set_epoch(epoch);
    h.set_chunk(chunk);
    h.set_step(step);
    h.set_rank(rank);
    h.set_worker(rank);
    h.set_samples(1);
    h.set_hits(1);
    return h;
  }
  std::size_t elements(std::uint32_t chunk) const {
    return static_cast<std::size_t>(placement.chunks[chunk].elements);
  }
  // Pushes the same value for every element; the call's number.
  CallId push(std::uint32_t chunk, std::int64_t step, std::uint32_t rank, float value) {
    return send(header(chunk, step, rank),
                std::make_unique<LoggedPayload>(std::vector<float>(elements(chunk), value)));
  }
  CallId pull(std::uint32_t chunk, std::int64_t version) {
    v1::ChunkRequestHeader h = header(chunk, 0, 0);
    h.set_pull_only(true);
    h.set_version(version);
    return send(h, nullptr);
  }
  CallId send(const v1::ChunkRequestHeader& h, std::unique_ptr<GradientPayload> payload) {
    shard.onRequest(h, std::move(payload), ++calls, now, out);
    return calls;
  }
  // The answer of a call, out of the list; null code when there is none yet.
  ChunkAnswer take(CallId call) {
    const auto it =
        std::find_if(out.begin(), out.end(), [&](const auto& a) { return a.call == call; });
    if (it == out.end()) return {};
    ChunkAnswer answer = *it;
    out.erase(it);
    return answer;
  }
  v1::ChunkCode code(CallId call) { return take(call).header.code(); }

  Placement placement;
  std::unique_ptr<Optimizer> optimizer;
  Shard shard;
  std::int64_t epoch = 0;
  TimePoint now = kStart;
  CallId calls = 0;
  std::vector<ChunkAnswer> out;
};

}  // namespace trainyard::runtime::ps
