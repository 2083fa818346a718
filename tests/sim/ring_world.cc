#include "tests/sim/ring_world.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/coordinator/epoch_plan.h"

namespace trainyard::sim {
namespace {

constexpr char kUid[] = "uid-1";
constexpr std::size_t kElements = 11;

bool same(const v1::Incarnation& a, const v1::Incarnation& b) {
  return a.created() == b.created() && a.start() == b.start();
}

}  // namespace

RingWorld::RingWorld(RingConfig config) : config_(std::move(config)), rng_(config_.seed) {
  v1::OptimizerSpec optimizer;
  optimizer.set_name("Momentum");
  optimizer.set_learning_rate(0.125);
  optimizer.set_momentum(0.5);
  optimizer_ = std::move(*runtime::makeOptimizer(optimizer));
  learning_rate_ = std::make_unique<runtime::LearningRate>(optimizer);
  plan_.ranks = config_.workers;
  plan_.step_samples =
      config_.global_batch > 0 ? config_.global_batch : config_.workers * config_.batch;
  plan_.end_position = config_.passes * config_.samples;
  plan_.steps = config_.passes > 0
                    ? runtime::stepsToReach(plan_.end_position, 0, 0, plan_.step_samples)
                    : config_.steps;
  reference_.push_back(initialState());
  buildReference(0);
  membership_.set_uid(kUid);
  publish(config_.workers);
  const int places =
      config_.scalings > 0 ? std::max(config_.workers, config_.max_workers) : config_.workers;
  nodes_.resize(static_cast<std::size_t>(places));
  starts_.assign(nodes_.size(), 0);
  done_.assign(nodes_.size(), false);
}

void RingWorld::problem(const std::string& text) {
  if (result_.problem.empty()) result_.problem = text;
}

void RingWorld::at(Duration delay, std::function<void()> event) {
  events_.add(now_ + delay, std::move(event));
}

Duration RingWorld::networkDelay() {
  const double share = rng_.unit();
  return fromSeconds(toSeconds(config_.max_delay) * (share < 0.9 ? share * 0.2 : share));
}

std::function<RingWorld::Node*()> RingWorld::finder(const Node& node) {
  return [this, index = node.index, self = node.incarnation]() -> Node* {
    Node* found = nodes_[index].get();
    return found != nullptr && same(found->incarnation, self) ? found : nullptr;
  };
}

RingWorld::State RingWorld::initialState() const {
  State state;
  for (std::size_t i = 0; i < kElements; ++i)
    state.weights.push_back(static_cast<float>(static_cast<int>(mixKey(1, i) % 64) - 32) / 16.0f);
  for (std::size_t s = 0; s < optimizer_->slots().size(); ++s)
    state.slots.emplace_back(kElements, optimizer_->initialSlot(s));
  return state;
}

// Small whole numbers: every order of summation gives the same bits.
RingWorld::Floats RingWorld::gradient(const runtime::StepPlan::Share& share) const {
  Floats values(kElements);
  for (int sample = 0; sample < share.count; ++sample) {
    const std::uint64_t key = mixKey(static_cast<std::uint64_t>(share.first + sample), 0);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += static_cast<float>(static_cast<int>(mixKey(key, i) % 9) - 4);
  }
  return values;
}

void RingWorld::takeStep(State& state, std::int64_t step, const Floats& sum,
                         std::int64_t samples) const {
  Floats mean = sum;
  for (float& x : mean) x /= static_cast<float>(samples);
  std::vector<std::span<float>> slots(state.slots.begin(), state.slots.end());
  const Floats before = state.weights;
  optimizer_->apply({step, learning_rate_->at(step)}, before, mean, state.weights, slots);
}

// All versions after `from`, which stays as it is.
void RingWorld::buildReference(std::int64_t from) {
  reference_.resize(static_cast<std::size_t>(from) + 1);
  for (std::int64_t step = from; step < plan_.steps; ++step) {
    Floats sum(kElements);
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const Floats part = gradient(plan_.shareOf(step, rank));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    State next = reference_.back();
    takeStep(next, step, sum, plan_.samplesOf(step));
    reference_.push_back(std::move(next));
  }
}

// An epoch may go on with other workers, and so with other samples in its steps.
void RingWorld::followEpoch(const v1::View& view) {
  const std::pair named(view.coordinator().start(), view.epoch().epoch());
  if (config_.scalings == 0 || named <= plan_named_ || view.epoch().members().empty()) return;
  plan_named_ = named;
  plan_epoch_ = view.epoch().epoch();
  if (view.epoch().fresh() || !view.epoch().restore_manifest().empty()) lineage_ = plan_epoch_;
  plan_ = runtime::planOf(view.epoch());
  used_.erase(used_.lower_bound(plan_.first_step), used_.end());
  buildReference(plan_.first_step);
}

bool RingWorld::check(const Node& node, std::int64_t version, const std::string& what) {
  const std::int64_t epoch = node.machine->epoch();
  if (epoch < plan_epoch_ && (epoch < lineage_ || version > plan_.first_step)) return false;
  const auto v = static_cast<std::size_t>(version);
  if (v >= reference_.size() || node.state != reference_[v])
    problem(fmt::format("worker {} {} a wrong version {}", node.index, what, version));
  return true;
}

void RingWorld::checkPositions() {
  std::set<std::int64_t> seen;
  for (const auto& [step, ranks] : used_) {
    for (const auto& [rank, used] : ranks) {
      for (int s = 0; s < used.second.count; ++s) {
        if (!seen.insert(used.second.first + s).second)
          problem(fmt::format("position {} used twice", used.second.first + s));
      }
    }
  }
  const auto expected = static_cast<std::size_t>(plan_.positionOf(plan_.steps));
  // Who died after it had taken a step has not written it down.
  if (result_.outcome == "succeeded" && result_.kills == 0 && seen.size() != expected)
    problem(fmt::format("{} positions used, {} expected", seen.size(), expected));
  if (!seen.empty() && *seen.rbegin() >= static_cast<std::int64_t>(expected))
    problem(fmt::format("position {} is behind the end", *seen.rbegin()));
}

void RingWorld::start(int index) {
  const auto i = static_cast<std::size_t>(index);
  auto node = std::make_unique<Node>();
  node->index = static_cast<std::uint32_t>(index);
  node->incarnation.set_created(1);
  node->incarnation.set_start(++starts_[i]);
  node->machine = std::make_unique<runtime::ring::RingWorker>(
      runtime::ring::RingWorkerConfig{.index = node->index,
                                      .evaluate_every = config_.evaluate_every,
                                      .port = static_cast<std::uint16_t>(4000 + index),
                                      .parameter_bytes = kElements * sizeof(float)});
  node->revision = isMember(i) ? membership_.revision() : 1;
  if (index == 0) {
    runtime::CoordinatorConfig c;
    c.job_uid = kUid;
    c.job_digest = "digest";
    c.self = node->incarnation;
    c.ring = true;
    c.steps = config_.passes > 0 ? 0 : config_.steps;
    c.passes = config_.passes;
    c.batch_size = config_.batch;
    c.global_batch_size = config_.global_batch;
    c.evaluate_every = config_.evaluate_every;
    c.checkpoint_every = std::chrono::milliseconds(200);
    c.finished = finished_;
    std::optional<runtime::Manifest> newest;
    for (const auto& m : manifests_) {
      if (!newest || std::pair(m.step, m.epoch) > std::pair(newest->step, newest->epoch))
        newest = m;
    }
    node->coordinator = std::make_unique<runtime::Coordinator>(c, membership_, newest, now_);
  }
  nodes_[i] = std::move(node);
  sendReport(*nodes_[i]);
  if (index == 0) tickCoordinator(*nodes_[0]);
}

void RingWorld::tickCoordinator(const Node& node) {
  at(std::chrono::milliseconds(50), [this, find = finder(node)] {
    Node* home = find();
    if (home == nullptr || done_[0]) return;
    home->coordinator->onTick(now_);
    execute(*home, home->coordinator->takeActions());
    tickCoordinator(*home);
  });
}

bool RingWorld::allCompute() const {
  const Node* home = nodes_[0].get();
  if (home == nullptr || home->coordinator->phase() != v1::PHASE_ACTIVE) return false;
  return std::all_of(nodes_.begin(), nodes_.begin() + wanted_,
                     [](const auto& node) { return node != nullptr; }) &&
         home->coordinator->progress(now_).epoch() > killed_in_;
}

void RingWorld::killSomeone() {
  if (config_.one_by_one && !finished_ && !allCompute()) {
    return at(std::chrono::milliseconds(20 + rng_.below(200)), [this] { killSomeone(); });
  }
  const std::size_t victim = rng_.below(nodes_.size());
  const Node* node = nodes_[victim].get();
  if (node == nullptr || done_[victim] || (victim == 0 && !config_.kill_first)) return;
  // A coordinator that starts again does not know of those that the membership has left out.
  const bool leaving = std::any_of(nodes_.begin() + wanted_, nodes_.end(),
                                   [](const auto& n) { return n != nullptr; });
  if (config_.one_by_one && leaving) return;
  ++result_.kills;
  result_.first_kills += victim == 0;
  for (const auto& other : nodes_) {
    const bool together = other != nullptr && other->group == node->group;
    if (!together || other->machine->version() == node->machine->version()) continue;
    ++result_.halves;
    break;
  }
  if (config_.one_by_one && nodes_[0] != nullptr)
    killed_in_ = nodes_[0]->coordinator->progress(now_).epoch();
  breakGroup(*node);
  nodes_[victim].reset();
  const Duration away = std::chrono::milliseconds(20 + rng_.below(rng_.below(4) == 0 ? 8000 : 300));
  at(away, [this, victim] {
    if (nodes_[victim] != nullptr || done_[victim]) return;
    if (result_.outcome == "stopped") {
      done_[victim] = true;  // nobody is started for a job that rests
      return;
    }
    if (isMember(victim)) start(static_cast<int>(victim));
    // The planner calls the coordinator back when a worker still needs it.
    if (done_[0] && victim != 0) {
      done_[0] = false;
      start(0);
    }
  });
}

void RingWorld::publish(int workers) {
  wanted_ = workers;
  membership_.set_revision(membership_.revision() + 1);
  membership_.clear_tasks();
  for (int i = 0; i < workers; ++i) {
    v1::MemberTask* task = membership_.add_tasks();
    task->mutable_id()->set_role(v1::ROLE_WORKER);
    task->mutable_id()->set_index(static_cast<std::uint32_t>(i));
    task->set_created(1);
    task->set_ip(fmt::format("127.0.0.{}", i + 1));
  }
}

// See World::scale().
void RingWorld::scale() {
  const bool over = std::any_of(done_.begin(), done_.begin() + wanted_, [](bool b) { return b; });
  const Node* home = nodes_[0].get();
  if (over || finished_) return;
  if (config_.one_by_one && (home == nullptr || home->coordinator->phase() == v1::PHASE_SEALING))
    return;
  const auto choices = static_cast<std::uint64_t>(config_.max_workers - config_.min_workers + 1);
  const int wanted = config_.min_workers + static_cast<int>(rng_.below(choices));
  for (int i = wanted_; i < wanted; ++i) {
    if (nodes_[static_cast<std::size_t>(i)] != nullptr) return;
  }
  if (wanted == wanted_) return;
  ++result_.scalings;
  const int before = wanted_;
  publish(wanted);
  for (int i = before; i < wanted; ++i) {
    done_[static_cast<std::size_t>(i)] = false;
    at(std::chrono::milliseconds(rng_.below(200)), [this, i] {
      const auto index = static_cast<std::size_t>(i);
      if (isMember(index) && nodes_[index] == nullptr) start(i);
    });
  }
  at(networkDelay(), [this] {
    Node* coordinator = nodes_[0].get();
    if (coordinator == nullptr || done_[0]) return;
    coordinator->coordinator->setMembership(membership_, now_);
    execute(*coordinator, coordinator->coordinator->takeActions());
  });
}

// Over for the planner.
bool RingWorld::allGone() const {
  if (!done_[0]) return false;
  for (std::size_t i = 1; isMember(i); ++i) {
    const bool never_joined =
        config_.scalings > 0 && (nodes_[i] == nullptr || nodes_[i]->machine->version() < 0);
    if (!done_[i] && !never_joined) return false;
  }
  return true;
}

RingResult RingWorld::run() {
  const auto some_time = [this](Duration within) {
    return std::chrono::milliseconds(10) + fromSeconds(rng_.unit() * toSeconds(within));
  };
  for (int i = 0; i < config_.workers; ++i) at(networkDelay(), [this, i] { start(i); });
  for (int k = 0; k < config_.kills; ++k)
    at(some_time(config_.kill_within), [this] { killSomeone(); });
  for (int s = 0; s < config_.scalings; ++s)
    at(some_time(config_.scale_within), [this] { scale(); });
  if (config_.stop_at) {
    at(*config_.stop_at, [this] {
      if (nodes_[0] == nullptr) return;
      nodes_[0]->coordinator->requestStop(now_);
      execute(*nodes_[0], nodes_[0]->coordinator->takeActions());
    });
  }
  const TimePoint end = now_ + config_.limit;
  while (!events_.empty() && result_.problem.empty() && !allGone()) {
    const Event event = events_.take();
    if (event.at > end) {
      problem(fmt::format(
          "not over after {:.0f} s: {}", toSeconds(config_.limit),
          nodes_[0] == nullptr ? "no coordinator" : nodes_[0]->coordinator->waitingFor(now_)));
      break;
    }
    now_ = event.at;
    event.run();
  }
  checkPositions();
  return result_;
}

}  // namespace trainyard::sim
