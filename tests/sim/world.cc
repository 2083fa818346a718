#include "tests/sim/world.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fmt/format.h"
#include "runtime/coordinator/epoch_plan.h"
#include "runtime/placement/moves.h"
#include "tests/sim/nodes.h"

namespace trainyard::sim {
namespace {

using runtime::ps::Snapshot;

constexpr char kUid[] = "uid-1";

runtime::Variable variable(const std::string& name, std::vector<std::int64_t> shape,
                           bool trainable = true) {
  runtime::Variable v;
  v.name = name;
  v.shape = std::move(shape);
  v.trainable = trainable;
  if (!trainable) v.dtype = runtime::DType::kInt32;
  return v;
}

float initialWeight(std::uint32_t chunk, std::size_t element) {
  return static_cast<float>(static_cast<int>(mixKey(chunk + 1, element) % 64) - 32) / 16.0f;
}

// A model this small is one chunk a server: here each of its pieces is one, so that there is
// something to move, and servers have several.
void splitChunks(runtime::Placement& placement) {
  std::vector<runtime::Chunk> pieces;
  for (const runtime::Chunk& chunk : placement.chunks) {
    for (const runtime::Segment& segment : chunk.segments) {
      runtime::Chunk piece = chunk;
      piece.id = static_cast<std::uint32_t>(pieces.size());
      piece.elements = segment.end - segment.begin;
      piece.segments = {segment};
      pieces.push_back(std::move(piece));
    }
  }
  placement.chunks = std::move(pieces);
}

}  // namespace

World::World(WorldConfig config) : config_(std::move(config)), rng_(config_.seed) {
  // Parts of 128 KiB and up would make few chunks of a small model: one chunk a part is what is
  // needed.
  std::vector<runtime::Variable> variables{variable("global_step", {}, false)};
  for (int i = 0; i < 5; ++i) variables.push_back(variable(fmt::format("v{}", i), {7 + i, 3}));
  v1::PlacementSpec spec;
  spec.set_strategy(rng_.below(2) == 0 ? "RoundRobin" : "Balanced");
  auto placed = runtime::place(spec, variables, config_.ps);
  if (!placed.ok()) {
    problem(placed.status().ToString());
    return;
  }
  placement_ = *placed;
  if (config_.ps_scalings > 0 || config_.small_chunks) splitChunks(placement_);
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
  if (config_.tickets) plan_.step_samples = config_.tickets->aggregate * config_.batch;
  plan_.steps = config_.passes > 0
                    ? runtime::stepsToReach(plan_.end_position, 0, 0, plan_.step_samples)
                    : config_.steps;
  reference_.emplace_back();
  reference_slots_.emplace_back(optimizer_->slots().size(), Weights());
  for (const runtime::Chunk& chunk : placement_.chunks) {
    const auto n = static_cast<std::size_t>(chunk.elements);
    reference_[0].emplace_back();
    for (std::size_t i = 0; i < n; ++i) reference_[0].back().push_back(initialWeight(chunk.id, i));
    for (std::size_t s = 0; s < reference_slots_[0].size(); ++s)
      reference_slots_[0][s].emplace_back(n, optimizer_->initialSlot(s));
  }
  if (config_.tables) {
    tables_ = std::make_unique<runtime::rows::SampleTables>(/*forgets=*/sharesSteps());
    grid_ = runtime::ps::RowGrid(placement_.chunks.size(), config_.ps);
    reference_rows_.emplace_back(/*forgets=*/sharesSteps());
  }
  buildReference(0);
  membership_.set_uid(kUid);
  ps_places_ = config_.ps_scalings > 0 ? std::max(config_.ps, config_.max_ps) : config_.ps;
  publishTasks(config_.ps, config_.workers);
  ps_.resize(static_cast<std::size_t>(ps_places_));
  const int places =
      config_.scalings > 0 ? std::max(config_.workers, config_.max_workers) : config_.workers;
  workers_.resize(static_cast<std::size_t>(places));
  ps_starts_.assign(ps_.size(), 0);
  worker_starts_.assign(workers_.size(), 0);
  ps_done_.assign(ps_.size(), false);
  worker_done_.assign(workers_.size(), false);
}

World::~World() = default;

void World::problem(const std::string& text) {
  if (result_.problem.empty()) result_.problem = text;
}

void World::at(Owner owner, Duration delay, std::function<void()> event) {
  events_.add(now_ + delay, std::move(event), owner);
}

World::Owner World::ownerOf(v1::Role role, std::size_t index) const {
  return static_cast<Owner>(index) + (role == v1::ROLE_PS ? 0 : ps_places_);
}

World::Owner World::ownerOf(const Node& node) const {
  return ownerOf(node.role, node.index);
}

World::Owner World::ownerOfServer(int number) const {
  if (number == runtime::kWorkerKeeper) return ownerOf(v1::ROLE_WORKER, 0);
  return ownerOf(v1::ROLE_PS, static_cast<std::size_t>(number));
}

World::PsNode* World::server(int number) const {
  if (number != runtime::kWorkerKeeper) return ps_[static_cast<std::size_t>(number)].get();
  return workers_[0] == nullptr ? nullptr : workers_[0]->keeper.get();
}

Duration World::networkDelay() {
  const double share = rng_.unit();
  // Mostly quick, sometimes as late as it gets: enough to reorder everything.
  return fromSeconds(toSeconds(config_.max_delay) * (share < 0.9 ? share * 0.2 : share));
}

Duration World::lateness(int copy) {
  if (copy == 0 || config_.late <= Duration::zero()) return Duration::zero();
  return fromSeconds(toSeconds(config_.late) * rng_.unit());
}

// Small whole numbers: every order of summation gives the same bits.
std::vector<float> World::gradient(const runtime::StepPlan::Share& share,
                                   std::uint32_t chunk) const {
  std::vector<float> values(static_cast<std::size_t>(placement_.chunks[chunk].elements));
  if (!sharesSteps()) {
    std::fill(values.begin(), values.end(), static_cast<float>(share.count));
    return values;
  }
  for (int sample = 0; sample < share.count; ++sample) {
    const std::uint64_t key = mixKey(static_cast<std::uint64_t>(share.first + sample), chunk);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] += static_cast<float>(static_cast<int>(mixKey(key, i) % 9) - 4);
    }
  }
  return values;
}

// An epoch may go on with other workers, and so with other samples in its steps.
void World::followEpoch(const v1::View& view) {
  if (view.epoch().epoch() > 1) epoch_starts_.insert(view.epoch().first_step());
  if (sameSteps()) return;
  // Where nobody that knew of it lives any more, a number may be given again.
  const std::pair named(view.coordinator().start(), view.epoch().epoch());
  if (named <= plan_named_ || view.epoch().members().empty()) return;
  plan_named_ = named;
  plan_epoch_ = view.epoch().epoch();
  if (view.epoch().fresh() || !view.epoch().restore_manifest().empty()) lineage_ = plan_epoch_;
  int ranks = 0;
  for (const auto& member : view.epoch().members()) ranks += member.id().role() == v1::ROLE_WORKER;
  result_.most_ranks = std::max(result_.most_ranks, ranks);
  // What was taken of the steps from here on is void.
  std::erase_if(used_, [&](const Used& u) { return u.step >= view.epoch().first_step(); });
  plan_ = runtime::planOf(view.epoch());
  buildReference(plan_.first_step);
}

// All versions after `from`, which stays as it is.
void World::buildReference(std::int64_t from) {
  const std::size_t chunks = placement_.chunks.size();
  const auto keep = static_cast<std::size_t>(from) + 1;
  reference_.resize(keep);
  reference_slots_.resize(keep);
  reference_norms_.resize(std::min(reference_norms_.size(), keep - 1));
  if (tables_ != nullptr) {
    reference_rows_.resize(keep);
    for (std::int64_t step = from; step < plan_.steps; ++step) {
      reference_rows_.push_back(reference_rows_.back());
      reference_rows_.back().take(plan_, step);
    }
  }
  Weights weights = reference_.back();
  std::vector<Weights> slots = reference_slots_.back();
  for (std::int64_t step = from; step < plan_.steps; ++step) {
    Weights mean(chunks);
    for (std::uint32_t c = 0; c < chunks; ++c) {
      mean[c].resize(weights[c].size());
      for (int rank = 0; rank < plan_.ranks; ++rank) {
        const auto g = gradient(plan_.shareOf(step, rank), c);
        for (std::size_t i = 0; i < g.size(); ++i) mean[c][i] += g[i];
      }
      for (float& x : mean[c]) x /= static_cast<float>(plan_.samplesOf(step));
    }
    const float scale = clipScale(mean, step);
    for (std::uint32_t c = 0; c < chunks; ++c) {
      if (scale != 1) {
        for (float& x : mean[c]) x *= scale;
      }
      std::vector<std::span<float>> spans;
      for (Weights& slot : slots) spans.emplace_back(slot[c]);
      const std::vector<float> before = weights[c];
      optimizer_->apply({step, learning_rate_->at(step)}, before, mean[c], weights[c], spans);
    }
    reference_.push_back(weights);
    reference_slots_.push_back(slots);
  }
}

// The definition, summed plainly and wide enough.
float World::clipScale(const Weights& mean, std::int64_t step) {
  if (config_.clip_norm <= 0) return 1;
  long double squares = 0;
  for (const auto& chunk : mean) {
    for (const float g : chunk) squares += static_cast<long double>(g) * g;
  }
  const auto norm = static_cast<double>(std::sqrt(squares));
  if (reference_norms_.size() == static_cast<std::size_t>(step)) reference_norms_.push_back(norm);
  if (norm <= config_.clip_norm) return 1;
  ++result_.clipped;
  return static_cast<float>(config_.clip_norm / norm);
}

void World::makeShard(PsNode& node) {
  runtime::ps::ShardConfig config;
  config.job_uid = kUid;
  config.self = node.incarnation;
  config.ps = node.number;
  config.deterministic = config_.deterministic;
  config.clip_norm = config_.clip_norm;
  config.asynchronous = config_.tickets.has_value();
  if (config_.tickets) config.aggregate = config_.tickets->aggregate;
  std::unique_ptr<runtime::ps::RowShard> rows;
  if (tables_ != nullptr) {
    const auto aggregate = config_.tickets ? std::optional(config.aggregate) : std::nullopt;
    rows = std::make_unique<runtime::ps::RowShard>(tables_->configs, grid_, node.number,
                                                   config.wire, aggregate, config_.deltas);
  }
  node.shard = std::make_unique<runtime::ps::Shard>(config, placement_, *optimizer_,
                                                    *learning_rate_, std::move(rows));
  node.machine = std::make_unique<runtime::ps::PsMachine>(*node.shard);
}

void World::startPs(int index) {
  const auto i = static_cast<std::size_t>(index);
  auto node = std::make_unique<PsNode>();
  node->role = v1::ROLE_PS;
  node->index = static_cast<std::uint32_t>(index);
  node->number = index;
  node->incarnation.set_created(1);
  node->incarnation.set_start(++ps_starts_[i]);
  makeShard(*node);
  if (index == 0) {
    runtime::CoordinatorConfig c;
    c.job_uid = kUid;
    c.job_digest = "digest";
    c.self = node->incarnation;
    c.chunks = runtime::chunkLoads(placement_, config_.tables);
    c.grid_ps = placement_.num_ps;
    c.steps = config_.passes > 0 ? 0 : config_.steps;
    c.passes = config_.passes;
    c.batch_size = config_.batch;
    c.global_batch_size = config_.global_batch;
    c.evaluate_every = config_.evaluate_every;
    c.checkpoint_every = std::chrono::milliseconds(200);
    c.finished = finished_;
    if (config_.deltas) c.full_every = std::chrono::milliseconds(700);
    c.backup_workers = config_.backup_workers;
    c.tickets = config_.tickets;
    c.replicate_pushes = config_.replicate_pushes;
    c.replicate = config_.replicate;
    std::optional<runtime::Manifest> newest;
    for (const auto& m : manifests_) {
      if (!newest || std::pair(m.step, m.epoch) > std::pair(newest->step, newest->epoch))
        newest = m;
    }
    if (newest) breakManifest(*newest);
    node->coordinator = std::make_unique<runtime::Coordinator>(c, membership_, newest, now_);
  }
  ps_[i] = std::move(node);
  sendReport(*ps_[i]);
  if (index == 0) tickCoordinator(ps_[0]->incarnation.start());
}

void World::tickCoordinator(std::uint32_t start) {
  at(ownerOf(v1::ROLE_PS, 0), std::chrono::milliseconds(50), [this, start] {
    PsNode* node = ps_[0].get();
    if (node == nullptr || node->incarnation.start() != start || ps_done_[0]) return;
    node->coordinator->onTick(now_);
    execute(*node, node->coordinator->takeActions());
    tickCoordinator(start);
  });
}

void World::startWorker(int index) {
  const auto i = static_cast<std::size_t>(index);
  auto node = std::make_unique<WorkerNode>();
  node->role = v1::ROLE_WORKER;
  node->index = static_cast<std::uint32_t>(index);
  node->incarnation.set_created(1);
  node->incarnation.set_start(++worker_starts_[i]);
  runtime::ps::WorkerConfig config;
  config.job_uid = kUid;
  config.index = node->index;
  config.self = node->incarnation;
  config.evaluate_every = config_.evaluate_every;
  config.window = 2;
  config.asynchronous = config_.tickets.has_value();
  if (config_.tickets) config.aggregate = config_.tickets->aggregate;
  config.window_until_answer = config_.clip_norm <= 0 && config_.seed % 2 == 0;
  for (const auto& chunk : placement_.chunks) config.ps_of_chunk.push_back(chunk.ps);
  if (tables_ != nullptr) {
    config.ps_of_part = grid_.psOfPart();
    node->rows = std::make_unique<runtime::ps::RowLink>(
        runtime::ps::RowLinkOptions{
            tables_->workers, grid_,
            [this](std::int64_t first, int count) { return foreseen(first, count); },
            config.asynchronous},
        runtime::ElementType::kFloat32);
  }
  node->machine = runtime::ps::makeWorkerMachine(config);
  node->weights.resize(placement_.chunks.size());
  node->revision = isMember(i) ? membership_.revision() : 1;
  if (index == 0 && (config_.tickets ? config_.replicate_pushes : config_.replicate)) {
    node->keeper = std::make_unique<PsNode>();
    node->keeper->role = node->role;
    node->keeper->incarnation = node->incarnation;
    node->keeper->number = runtime::kWorkerKeeper;
    makeShard(*node->keeper);
  }
  workers_[i] = std::move(node);
  sendReport(*workers_[i]);
}

World::Owner World::chooseVictim() {
  const int tasks = ps_places_ + static_cast<int>(workers_.size());
  const int victim = static_cast<int>(rng_.below(static_cast<std::uint64_t>(tasks)));
  const bool is_ps = victim < ps_places_;
  const auto i = static_cast<std::size_t>(is_ps ? victim : victim - ps_places_);
  // A finished task is not run again.
  const bool over =
      is_ps ? (ps_done_[i] || ps_[i] == nullptr) : (worker_done_[i] || workers_[i] == nullptr);
  return over ? kNobody : victim;
}

// Longer than the coordinator's deadline, or a moment. What is sent to it meanwhile waits for it.
void World::freezeSomeone() {
  const Owner victim = chooseVictim();
  if (victim == kNobody) return;
  ++result_.freezes;
  const Duration time = std::chrono::milliseconds(100 + rng_.below(12'000));
  frozen_until_[victim] = std::max(frozen_until_[victim], now_ + time);
}

bool World::allCompute() const {
  if (ps_[0] == nullptr || ps_[0]->coordinator->phase() != v1::PHASE_ACTIVE) return false;
  const auto here = [](const auto& node) { return node != nullptr; };
  return std::all_of(ps_.begin(), ps_.begin() + wanted_ps_, here) &&
         std::all_of(workers_.begin(), workers_.begin() + wanted_workers_, here) &&
         ps_[0]->coordinator->progress(now_).epoch() > killed_in_ &&
         ps_[0]->coordinator->progress(now_).unguarded_parts() == 0;
}

void World::killSomeone() {
  if (config_.one_by_one && !finished_ && !allCompute()) {
    at(kNobody, std::chrono::milliseconds(20 + rng_.below(200)), [this] { killSomeone(); });
    return;
  }
  const Owner victim = chooseVictim();
  const bool is_ps = victim < ps_places_;
  if (victim == kNobody || (is_ps ? !config_.kill_ps : !config_.kill_workers)) return;
  killTask(victim);
}

void World::killCoordinator() {
  if (ps_[0] != nullptr && !ps_done_[0] && allCompute()) killTask(ownerOf(v1::ROLE_PS, 0));
}

void World::killTask(Owner victim) {
  const bool is_ps = victim < ps_places_;
  const auto i = static_cast<std::size_t>(is_ps ? victim : victim - ps_places_);
  ++result_.kills;
  result_.worker_kills += !is_ps;
  result_.coordinator_kills += victim == 0;
  if (config_.one_by_one && ps_[0] != nullptr)
    killed_in_ = ps_[0]->coordinator->progress(now_).epoch();
  frozen_until_.erase(victim);
  if (is_ps) {
    ps_[i].reset();
  } else {
    workers_[i].reset();
  }
  const Duration away = std::chrono::milliseconds(20 + rng_.below(rng_.below(4) == 0 ? 8000 : 300));
  at(kNobody, away, [this, is_ps, i] {
    if (!is_ps && result_.outcome == "stopped") {
      worker_done_[i] = true;  // nobody is started for a job that rests
    } else if (is_ps) {
      if (ps_[i] == nullptr && !ps_done_[i] && (isServer(i) || rng_.below(2) == 0))
        startPs(static_cast<int>(i));
    } else if (workers_[i] == nullptr && !worker_done_[i] && (isMember(i) || rng_.below(2) == 0)) {
      startWorker(static_cast<int>(i));
      // The planner calls servers back that have ended when a worker still needs them.
      const bool coordinator_gone = ps_done_[0];
      for (std::size_t p = 0; coordinator_gone && p < ps_.size(); ++p) {
        if (!ps_done_[p] || !isServer(p)) continue;
        ps_done_[p] = false;
        startPs(static_cast<int>(p));
      }
    }
  });
}

// Over for the planner: the coordinator's and all workers' processes have ended; it ends the other
// servers.
bool World::allGone() const {
  if (!ps_done_[0]) return false;
  for (std::size_t i = 0; i < static_cast<std::size_t>(wanted_workers_); ++i) {
    // Who was to join when the job ended learns of it from the record.
    const bool never_joined =
        config_.scalings > 0 && (workers_[i] == nullptr || workers_[i]->machine->version() < 0);
    if (!worker_done_[i] && !never_joined) return false;
  }
  return true;
}

WorldResult World::run() {
  if (!result_.problem.empty()) return result_;
  for (int i = 0; i < config_.ps; ++i) at(kNobody, networkDelay(), [this, i] { startPs(i); });
  for (int i = 0; i < config_.workers; ++i)
    at(kNobody, networkDelay(), [this, i] { startWorker(i); });
  for (int k = 0; k < config_.kills; ++k) {
    const Duration when = fromSeconds(rng_.unit() * toSeconds(config_.kill_within));
    at(kNobody, std::chrono::milliseconds(10) + when, [this] { killSomeone(); });
  }
  for (int f = 0; f < config_.freezes; ++f) {
    at(kNobody, std::chrono::milliseconds(10 + rng_.below(800)), [this] { freezeSomeone(); });
  }
  for (int s = 0; s < config_.scalings; ++s) {
    const Duration when = fromSeconds(rng_.unit() * toSeconds(config_.scale_within));
    at(kNobody, std::chrono::milliseconds(10) + when, [this] { scale(); });
  }
  for (int s = 0; s < config_.ps_scalings; ++s) {
    const Duration when = fromSeconds(rng_.unit() * toSeconds(config_.scale_within));
    at(kNobody, std::chrono::milliseconds(10) + when, [this] { scalePs(); });
  }
  for (int l = 0; l < config_.lengths; ++l) {
    const Duration when = fromSeconds(rng_.unit() * toSeconds(config_.scale_within));
    at(kNobody, std::chrono::milliseconds(10) + when, [this] { changeLength(); });
  }
  if (config_.stop_at) {
    at(kNobody, *config_.stop_at, [this] {
      if (ps_[0] != nullptr) {
        ps_[0]->coordinator->requestStop(now_);
        execute(*ps_[0], ps_[0]->coordinator->takeActions());
      }
    });
  }
  const TimePoint end = now_ + config_.limit;
  while (!events_.empty() && result_.problem.empty() && !allGone()) {
    Event event = events_.take();
    if (event.at > end) {
      problem(fmt::format(
          "not over after {:.0f} s: {}", toSeconds(config_.limit),
          ps_[0] == nullptr ? "no coordinator" : ps_[0]->coordinator->waitingFor(now_)));
      break;
    }
    now_ = event.at;
    const auto frozen = frozen_until_.find(event.owner);
    if (frozen != frozen_until_.end() && frozen->second > now_) {
      event.at = frozen->second;  // in the order in which it came
      events_.put(std::move(event));
      continue;
    }
    event.run();
  }
  checkPositions();
  result_.checkpoints = static_cast<int>(manifests_.size());
  for (const runtime::Manifest& manifest : manifests_) result_.deltas += !manifest.base.empty();
  return result_;
}

}  // namespace trainyard::sim
