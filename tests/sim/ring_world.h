// A whole job of strategy AllReduce in one thread on a seeded clock, network and process table: the
// shipped coordinator and ring workers, with their group and everything around them simulated.
// Every version that a rank takes or receives is compared with a reference computed without any
// distribution.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/core/rng.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/ring/ring_worker.h"
#include "tests/sim/event_queue.h"

namespace trainyard::sim {

struct RingConfig {
  std::uint64_t seed = 1;
  int workers = 3;
  std::int64_t steps = 30;  // or, with passes:
  std::int64_t passes = 0;
  std::int64_t samples = 1000;
  int batch = 4;         // of each worker; or
  int global_batch = 0;  // of all
  std::int64_t evaluate_every = 10;
  int kills = 0;  // of random workers at random moments
  // The first worker's process has the coordinator too.
  bool kill_first = true;
  bool one_by_one = false;  // only while all are there and compute: what is left waits
  Duration kill_within = std::chrono::milliseconds(1000);
  double drop = 0.0;  // share of reports and views that are lost
  Duration max_delay = std::chrono::milliseconds(8);
  int scalings = 0;     // to a random number of workers at random moments
  int min_workers = 1;  // of them
  int max_workers = 5;
  Duration scale_within = std::chrono::milliseconds(600);
  std::optional<Duration> stop_at = std::nullopt;
  Duration limit = std::chrono::minutes(30);  // of simulated time
};

struct RingResult {
  std::string problem;  // empty: all invariants hold
  std::string outcome;  // succeeded | stopped | failed
  std::int64_t steps = 0;
  std::int64_t lost_steps = 0;
  std::int64_t epochs = 0;
  int kills = 0;
  int first_kills = 0;  // of the worker with the coordinator
  int scalings = 0;
  int left = 0;
  int returns = 0;   // to a checkpoint
  int failures = 0;  // steps that a rank gave up because another was gone
  int halves = 0;    // steps that some ranks have taken when another was killed, and some not
};

class RingWorld {
 public:
  explicit RingWorld(RingConfig config);
  RingResult run();

 private:
  using Floats = std::vector<float>;
  struct State {
    Floats weights;
    std::vector<Floats> slots;
    bool operator==(const State&) const = default;
  };
  struct Node {
    std::uint32_t index = 0;
    v1::Incarnation incarnation;
    std::unique_ptr<runtime::ring::RingWorker> machine;
    std::unique_ptr<runtime::Coordinator> coordinator;  // of worker-0
    std::map<std::uint64_t, std::function<void(const v1::View&)>> tickets;
    std::uint64_t next_ticket = 1;
    State state;
    std::optional<v1::EpochInfo> preparing;
    std::string group;  // that it is in or has been in last
    // What the trainer's thread is about, when it is not preparing.
    enum class Doing { kNothing, kComputing, kSumming, kApplying } doing = Doing::kNothing;
    runtime::Turn turn;
    int calls = 0;  // reports under way
    bool poked = false;
    std::int64_t revision = 0;
  };
  // The ranks of an epoch, as far as they have met.
  struct Group {
    v1::EpochInfo epoch;
    std::set<std::uint32_t> joined;                       // by index
    std::map<std::int64_t, std::map<int, Floats>> parts;  // by step, rank
    bool broken = false;
  };

  void at(Duration delay, std::function<void()> event);
  Duration networkDelay();
  void problem(const std::string& text);
  // Nothing when that process has ended meanwhile.
  std::function<Node*()> finder(const Node& node);

  Floats gradient(const runtime::StepPlan::Share& share) const;
  State initialState() const;
  void takeStep(State& state, std::int64_t step, const Floats& sum, std::int64_t samples) const;
  void buildReference(std::int64_t from);
  void followEpoch(const v1::View& view);
  // The node's state against the reference. False: it is of steps that a newer epoch has made void.
  bool check(const Node& node, std::int64_t version, const std::string& what);
  void checkPositions();

  void start(int index);
  void tickCoordinator(const Node& node);
  bool allCompute() const;
  void killSomeone();
  void scale();
  void publish(int workers);
  bool isMember(std::size_t index) const { return static_cast<int>(index) < wanted_; }
  bool allGone() const;

  void sendReport(Node& node);
  void answered(Node& node, const v1::MemberReport& report, const std::optional<v1::View>& view);
  void poke(Node& node);
  void execute(Node& node, std::vector<runtime::CoordinatorAction> actions);
  void commit(Node& node, const runtime::Manifest& manifest);

  // The trainer's thread.
  void work(Node& node);
  void join(Node& node);
  void give(const std::string& group);
  void receive(Node& node, const State& given);
  void load(Node& node, const v1::EpochInfo& epoch);
  void takeTurn(Node& node);
  void compute(Node& node);
  void handIn(Node& node);
  void sumIsThere(Node& node, const Floats& sum);
  void apply(Node& node, const Floats& sum);
  void fails(Node& node);
  void breakGroup(const Node& who);
  void copyIfDue(Node& node);

  RingConfig config_;
  Rng rng_;
  TimePoint now_{std::chrono::hours(1)};
  EventQueue events_;

  runtime::StepPlan plan_;
  std::pair<std::uint32_t, std::int64_t> plan_named_;  // by which life of the coordinator
  std::int64_t plan_epoch_ = 0;                        // its number
  std::int64_t lineage_ = 0;  // first epoch whose versions are those of the newest
  std::unique_ptr<runtime::Optimizer> optimizer_;
  std::unique_ptr<runtime::LearningRate> learning_rate_;
  std::vector<State> reference_;  // by version

  v1::Membership membership_;
  int wanted_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::uint32_t> starts_;
  std::vector<bool> done_;
  std::map<std::string, Group> groups_;  // by epoch and incarnations of its members
  std::set<std::pair<std::uint32_t, std::int64_t>> returned_;  // by which life of the coordinator
  std::int64_t killed_in_ = 0;  // epoch in which somebody was killed last

  // The disk.
  std::vector<runtime::Manifest> manifests_;
  std::map<std::string, std::pair<std::int64_t, State>> files_;
  std::optional<v1::Evaluation> finished_;
  // By step, newest epoch: the shares of its ranks.
  std::map<std::int64_t, std::map<int, std::pair<std::int64_t, runtime::StepPlan::Share>>> used_;
  RingResult result_;
};

}  // namespace trainyard::sim
