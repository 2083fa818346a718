#include "runtime/ps/ps_synchronizer.h"

#include <algorithm>
#include <numeric>

#include "base/core/check.h"
#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/ps/protocol.h"
#include "runtime/ps/push_clip.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::ps {

PsSynchronizer::PsSynchronizer(PsSynchronizerOptions options, const Placement& placement,
                               std::vector<std::span<float>> weights, const Clock& clock,
                               std::function<void()> urgent)
    : options_(std::move(options)),
      clock_(clock),
      urgent_(std::move(urgent)),
      weights_(std::move(weights)),
      pieces_(placement.chunks.size()),
      chunks_of_(weights_.size()),
      traffic_(v1::ROLE_PS),
      addresses_(options_.worker.index),
      machine_(makeWorkerMachine(options_.worker)),
      gradients_(weights_.size()),
      missing_(placement.chunks.size(), 0) {
  std::vector<int> model_variable(placement.variables.size(), -1);
  int next = 0;
  for (std::size_t v = 0; v < placement.variables.size(); ++v) {
    if (!placement.variables[v].trainable) continue;
    model_variable[v] = next++;
    names_.push_back(placement.variables[v].name);
  }
  TY_CHECK(next == static_cast<int>(weights_.size()),
           "placement and model have the same variables");
  for (const Chunk& chunk : placement.chunks) {
    for (const Segment& segment : chunk.segments) {
      const int variable = model_variable[static_cast<std::size_t>(segment.variable)];
      pieces_[chunk.id].push_back({variable, segment.begin, segment.end});
      auto& chunks = chunks_of_[static_cast<std::size_t>(variable)];
      if (chunks.empty() || chunks.back() != chunk.id) chunks.push_back(chunk.id);
    }
  }
  if (options_.rows) rows_ = std::make_unique<RowLink>(*options_.rows, options_.wire);
  ChunkClient::Events events;
  events.received = [this](std::uint32_t chunk, std::uint64_t attempt) {
    {
      std::lock_guard lock(mutex_);
      machine_->onReceived(chunk, attempt);
    }
    pump();
  };
  events.replied = [this](const ChunkClient::Reply& reply) { return onReply(reply); };
  events.stored = [this](const ChunkClient::Reply& reply) { onStored(reply); };
  events.cut = [this](const ChunkClient::Reply& reply, const Status& why) {
    if (isRead(reply.chunk)) return onReadEnd(reply, false);
    {
      std::lock_guard lock(mutex_);
      machine_->onCut(reply.chunk, reply.attempt, why, clock_.now());
    }
    changed();
    pump();
  };
  for (const Chunk& chunk : placement.chunks)
    elements_.push_back(static_cast<std::size_t>(chunk.elements));
  ChunkClient::Options connecting{options_.access, options_.call_limit, placement.num_ps};
  connecting.wire = options_.wire;
  gradient_memory_ = std::make_shared<LatePool>(smallestAlone());
  if (options_.share_memory) connecting.memory = [this] { return makePool(); };
  client_ = std::make_unique<ChunkClient>(std::move(connecting), std::move(events));
}

// The bytes from which on a variable shares no chunk: its gradient is pushed from where it lies,
// while others are put together in memory of their chunk.
std::size_t PsSynchronizer::smallestAlone() const {
  std::size_t sharing = 0;
  for (const std::vector<Piece>& pieces : pieces_) {
    for (const Piece& piece : pieces) {
      const std::size_t size = weights_[static_cast<std::size_t>(piece.variable)].size_bytes();
      if (pieces.size() > 1) sharing = std::max(sharing, size);
    }
  }
  return sharing + 1;
}

// Room for all gradients, be they arrays of the model's or of chunks.
StatusOr<std::shared_ptr<SharedPool>> PsSynchronizer::makePool() {
  const std::size_t all = std::accumulate(elements_.begin(), elements_.end(), std::size_t{0});
  TY_ASSIGN_OR_RETURN(auto pool,
                      SharedPool::create(all * sizeof(float), elements_.size() + weights_.size()));
  gradient_memory_->open(pool);
  return pool;
}

PsSynchronizer::~PsSynchronizer() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;  // the answers of given-up calls ask for nothing new
  }
  client_->close();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return asking_ == 0; });
}

// Under one lock with what is done with it: an older word must not come after a newer one.
void PsSynchronizer::setMembership(const v1::Membership& membership) {
  std::lock_guard lock(addresses_mutex_);
  for (const auto& [ps, target, near] : addresses_.onMembership(membership))
    client_->setAddress(ps, target, near);
}

void PsSynchronizer::followServers(const v1::View& view) {
  std::lock_guard lock(addresses_mutex_);
  for (const auto& [ps, target, near] : addresses_.onView(view))
    client_->setAddress(ps, target, near);
}

std::vector<PayloadPiece> PsSynchronizer::payloadOf(std::uint32_t chunk) const {
  std::vector<PayloadPiece> payload;
  payload.reserve(pieces_[chunk].size());
  for (const Piece& piece : pieces_[chunk]) {
    const Gradient& gradient = gradients_[static_cast<std::size_t>(piece.variable)];
    payload.push_back({gradient.values.subspan(static_cast<std::size_t>(piece.begin),
                                               static_cast<std::size_t>(piece.end - piece.begin)),
                       gradient.owner});
  }
  return payload;
}

void PsSynchronizer::pump() {
  // For all rounds: what is refused in one is not due again in a later one.
  const TimePoint now = clock_.now();
  while (sendSome(now)) {
  }
}

// True: there may be more to send, because something was refused at once and its place is free.
bool PsSynchronizer::sendSome(TimePoint now) {
  std::vector<Send> sends;
  std::vector<std::vector<PayloadPiece>> payloads;
  std::vector<RowBytes> bodies;  // by send; empty for chunks
  std::optional<v1::TakeRequest> question;
  {
    std::lock_guard lock(mutex_);
    if (closing_) return false;
    sends = machine_->takeSends(now);
    question = machine_->takeAsk(now);
    if (question) ++asking_;
    for (Send& send : sends) {
      const bool is_part = isPart(send.chunk);
      bodies.push_back(is_part ? rows_->bodyOf(send) : RowBytes{});
      payloads.push_back(send.with_payload && !is_part ? payloadOf(send.chunk)
                                                       : std::vector<PayloadPiece>());
    }
  }
  bool refused = false;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const Send& send = sends[i];
    const auto sent = isPart(send.chunk)
                          ? client_->sendBytes(send.ps, send.attempt, send.header,
                                               {bodies[i].span(), bodies[i].memory})
                          : client_->send(send.ps, send.attempt, send.header, payloads[i]);
    if (sent.ok()) {
      traffic_.transmitted(static_cast<std::uint32_t>(send.ps), *sent);
      continue;
    }
    refused = true;
    std::lock_guard lock(mutex_);
    machine_->onReply(send.chunk, send.attempt, sent.status(), {}, now);
  }
  if (refused) changed();
  if (question) ask(*question);
  return refused;
}

void PsSynchronizer::ask(const v1::TakeRequest& request) {
  options_.ask(request, [this, request](const Status& status, const v1::TakeReply& reply) {
    {
      std::lock_guard lock(mutex_);
      machine_->onTake(request, status, reply, clock_.now());
    }
    changed();
    pump();
    std::lock_guard lock(mutex_);
    --asking_;
    changed_.notify_all();
  });
}

std::vector<std::span<float>> PsSynchronizer::targetsOf(std::uint32_t chunk) const {
  std::vector<std::span<float>> targets;
  for (const Piece& piece : pieces_[chunk]) {
    targets.push_back(weights_[static_cast<std::size_t>(piece.variable)].subspan(
        static_cast<std::size_t>(piece.begin), static_cast<std::size_t>(piece.end - piece.begin)));
  }
  return targets;
}

std::vector<std::span<float>> PsSynchronizer::onReply(const ChunkClient::Reply& reply) {
  if (isRead(reply.chunk)) return onReadReply(reply);
  Status status = reply.status;
  bool store = false;
  std::vector<std::span<float>> targets;
  {
    std::lock_guard lock(mutex_);
    const std::size_t expected =
        isPart(reply.chunk) ? rows_->elementsOf(reply.chunk) : elements_[reply.chunk];
    if (status.ok() && reply.header.code() == v1::CHUNK_OK && reply.elements != expected)
      status = absl::InternalError(fmt::format("chunk {} came with the wrong length", reply.chunk));
    if (reply.pace) {
      machine_->onPace(reply.ps, reply.lane, reply.pace->bytes_per_second, reply.pace->round_trip);
    }
    store = machine_->onReply(reply.chunk, reply.attempt, status, reply.header, clock_.now());
    if (store && isPart(reply.chunk)) targets = {rows_->target(reply.chunk, reply.elements)};
  }
  if (status.ok() && reply.header.code() == v1::CHUNK_NOT_READY) tellStall(reply);
  if (store) return isPart(reply.chunk) ? targets : targetsOf(reply.chunk);
  changed();
  pump();
  return {};
}

// A server has held a request for its stall limit. Once in that time: all chunks wait for the same.
void PsSynchronizer::tellStall(const ChunkClient::Reply& reply) {
  constexpr Duration kEach = std::chrono::seconds(50);
  if (reply.header.message() == kAskedAgain) return;
  const TimePoint now = clock_.now();
  if (stall_told_ && now - *stall_told_ < kEach) return;
  stall_told_ = now;
  TY_WARN("{}: {}", serverName(reply.ps), reply.header.message());
}

// The variable of a chunk's first weights that are not finite, or "". The server's are; only
// rounding to float16 can make them so.
std::string PsSynchronizer::overflowIn(std::uint32_t chunk) const {
  if (options_.wire != ElementType::kFloat16) return "";
  const std::vector<std::span<float>> targets = targetsOf(chunk);
  const auto bad = std::find_if(targets.begin(), targets.end(),
                                [](std::span<const float> target) { return !allFinite(target); });
  if (bad == targets.end()) return "";
  const Piece& piece = pieces_[chunk][static_cast<std::size_t>(bad - targets.begin())];
  return names_[static_cast<std::size_t>(piece.variable)];
}

void PsSynchronizer::onStored(const ChunkClient::Reply& reply) {
  traffic_.received(static_cast<std::uint32_t>(reply.ps), reply.bytes);
  if (isRead(reply.chunk)) return onReadEnd(reply, true);
  const std::string overflow = isPart(reply.chunk) ? "" : overflowIn(reply.chunk);
  {
    std::lock_guard lock(mutex_);
    if (isPart(reply.chunk)) rows_->stored(reply.chunk, reply.header);
    if (!overflow.empty()) {
      machine_->abort(reply.header.version(), overflow,
                      "weights are beyond 65,504, where training.wireType Float16 ends");
    }
    machine_->onStored(reply.chunk, reply.attempt);
  }
  changed();
  pump();
}

// Wakes the trainer, in finish() not before the step is over: it would compete with the thread that
// stores the chunks. And the link, where the machine asks for it.
void PsSynchronizer::changed() {
  bool urgent = false;
  bool wanted = false;
  {
    std::lock_guard lock(mutex_);
    urgent = machine_->takeUrgent();
    wanted = !finishing_ || machine_->stepState() != WorkerMachine::StepState::kPending;
  }
  if (wanted) changed_.notify_all();
  if (urgent) urgent_();
}

void PsSynchronizer::onView(const v1::View& view) {
  followServers(view);
  bool entered = false;
  {
    std::lock_guard lock(mutex_);
    const std::int64_t former = machine_->epoch();
    machine_->onView(view);
    entered = machine_->epoch() != former;
    // A server that has gone silent in the middle of an answer would hold that chunk up. Under the
    // lock: any thread may send for the new epoch from here on, and that is not to be forgotten.
    if (entered) client_->forget();
  }
  if (entered) hitFailpoint("worker.entered", view.epoch().epoch());
  changed();
  pump();
}

void PsSynchronizer::fillReport(v1::MemberReport& report) const {
  std::lock_guard lock(mutex_);
  machine_->fillReport(report);
}

std::string PsSynchronizer::waitingFor() const {
  std::lock_guard lock(mutex_);
  return machine_->lastProblem();
}

bool PsSynchronizer::over() const {
  std::lock_guard lock(mutex_);
  return machine_->over();
}

bool PsSynchronizer::interrupted() const {
  std::lock_guard lock(mutex_);
  return machine_->interrupted();
}

StatusOr<Turn> PsSynchronizer::next() {
  const TimePoint limit = clock_.now() + options_.patience;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      auto turn = machine_->turn();
      if (!turn.ok()) return turn.status();
      if (turn->has_value()) {
        if ((*turn)->kind == Turn::Kind::kTrain) {
          for (Gradient& gradient : gradients_) gradient = Gradient{};
          held_ = 0;
          samples_ = (*turn)->samples;
          push_norm_.reset();
          if (rows_ != nullptr) turn_rows_ = rows_->beginTurn(**turn);
          for (std::size_t c = 0; c < pieces_.size(); ++c) {
            int last = -1;
            missing_[c] = 0;
            for (const Piece& piece : pieces_[c])
              missing_[c] += std::exchange(last, piece.variable) != piece.variable;
          }
        }
        return **turn;
      }
      if (clock_.now() >= limit) {
        return absl::DeadlineExceededError(
            fmt::format("nothing to do for too long: {}", machine_->lastProblem()));
      }
      changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
    pump();  // delayed repeats
  }
}

bool PsSynchronizer::push(Gradient gradient) {
  const auto variable = static_cast<std::size_t>(gradient.variable);
  {
    std::lock_guard lock(mutex_);
    gradients_[variable] = std::move(gradient);
    ++held_;
    if (options_.push_clip_norm > 0) return true;
    gradientThere(variable);
  }
  pump();
  return true;
}

// Called with the mutex held.
void PsSynchronizer::gradientThere(std::size_t variable) {
  for (std::uint32_t chunk : chunks_of_[variable]) {
    if (--missing_[chunk] == 0) machine_->gradientReady(chunk);
  }
}

// None of the gradients has been announced: nobody else reads them yet. One that is not finite was
// not handed over, and the others stay here.
void PsSynchronizer::releaseClipped() {
  if (held_ < gradients_.size()) return;
  const double norm = clipPush(options_.push_clip_norm, std::max(samples_, 1), gradients_);
  std::lock_guard lock(mutex_);
  push_norm_ = norm;
  // In the order of the backward pass, in which chunks are numbered.
  for (std::size_t v = gradients_.size(); v-- > 0;) gradientThere(v);
}

StatusOr<StepOutcome> PsSynchronizer::finish(const BatchLoss& loss) {
  if (options_.push_clip_norm > 0) releaseClipped();
  {
    std::lock_guard lock(mutex_);
    machine_->lossReady(loss);
    finishing_ = true;
  }
  pump();
  const TimePoint limit = clock_.now() + options_.patience;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto state = machine_->stepState();
      if (state != WorkerMachine::StepState::kPending) {
        finishing_ = false;
        StepOutcome outcome;
        outcome.complete = state == WorkerMachine::StepState::kComplete;
        const WorkerMachine::StepEnd end = machine_->endStep();
        outcome.step = end.step;
        outcome.too_late = end.too_late;
        outcome.loss = end.loss;
        outcome.accuracy = end.accuracy;
        outcome.gradient_norm = push_norm_ ? push_norm_ : end.gradient_norm;
        lock.unlock();
        changed();
        return outcome;
      }
      if (clock_.now() >= limit) {
        finishing_ = false;
        return absl::DeadlineExceededError(
            fmt::format("the step is not complete: {}", machine_->lastProblem()));
      }
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    pump();  // delayed repeats
  }
}

void PsSynchronizer::evaluated(const BatchScore& score) {
  {
    std::lock_guard lock(mutex_);
    machine_->evaluated(score.hits, score.samples, score.loss_sum, score.clicks);
  }
  changed();
}

void PsSynchronizer::abort(std::int64_t step, std::string_view variable, std::string_view reason) {
  {
    std::lock_guard lock(mutex_);
    machine_->abort(step, std::string(variable), std::string(reason));
  }
  changed();
}

}  // namespace trainyard::runtime::ps
