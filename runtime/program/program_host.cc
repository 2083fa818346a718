#include "runtime/program/program_host.h"

#include <algorithm>
#include <memory_resource>
#include <utility>

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/recycled_memory.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/program/initial_values.h"

namespace trainyard::runtime {
namespace {

// A program may write its next gradients while those of a step that was given up are still on their
// way to servers: what leaves is a copy, in memory from which servers of this machine read.
struct GradientCopy {
  GradientCopy(std::span<const float> from, std::shared_ptr<std::pmr::memory_resource> memory)
      : memory(std::move(memory)), values(from.begin(), from.end(), this->memory.get()) {}

  std::shared_ptr<std::pmr::memory_resource> memory;
  std::pmr::vector<float> values;
};

BatchLoss lossOf(const session::Finish& finish) {
  BatchLoss loss{.loss_sum = finish.loss_sum, .samples = finish.samples};
  // Who has no samples need not count them.
  if (finish.samples == 0 || finish.hits >= 0) loss.hits = std::max<std::int64_t>(finish.hits, 0);
  return loss;
}

}  // namespace

session::Welcome welcomeOf(const v1::TrainingJob& job, std::uint32_t index) {
  const v1::Training& training = job.spec().training();
  return {.job = job.metadata().name(),
          .index = static_cast<std::int32_t>(index),
          .seed = static_cast<std::uint64_t>(training.seed()),
          .tables = sessionTables(training)};
}

ProgramHost::ProgramHost(Options options, ProgramJob& job, TrainObserver& observer,
                         const Clock& clock)
    : options_(std::move(options)),
      job_(job),
      observer_(observer),
      clock_(clock),
      model_path_(declaredModelPath(options_.checkpoint_dir)),
      rows_(options_.tables),
      state_(options_.checkpoint_dir, options_.kept) {}

StatusOr<session::MemoryPlace> ProgramHost::declare(const session::Declaration& declaration) {
  TY_RETURN_IF_ERROR(checkDeclared(declaration));
  if (declaration.own_update && !options_.workers_update) {
    return absl::FailedPreconditionError(
        "the model is declared with an update of the program's own, but in this job parameter "
        "servers make the update (spec.strategy: ParameterServer)");
  }
  declaration_ = declaration;
  // What is known already needs no first weights to be refused.
  StatusOr<DeclaredModel> model = readDeclaredModel(model_path_);
  if (model.ok()) {
    TY_RETURN_IF_ERROR(checkSame(*model));
  } else if (!absl::IsNotFound(model.status())) {
    return model.status();
  }
  TY_ASSIGN_OR_RETURN(session::SessionMemory memory, session::SessionMemory::create(declaration));
  memory_.emplace(std::move(memory));
  return memory_->place();
}

Status ProgramHost::checkSame(const DeclaredModel& model) const {
  const std::string different = difference(declaration_, model.declaration);
  if (different.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("the program declares another model than the job has: {}", different));
}

// The chief's program says what the job's model is, where that is not known from before.
StatusOr<DeclaredModel> ProgramHost::agreeOnModel() const {
  if (options_.chief) {
    StatusOr<DeclaredModel> known = readDeclaredModel(model_path_);
    if (!absl::IsNotFound(known.status())) return known;
    if (isArrayFile(options_.init_from)) {
      TY_RETURN_IF_ERROR(
          readInitialArrays(options_.init_from, declaration_, /*trained=*/true, *memory_));
    }
    TY_RETURN_IF_ERROR(writeDeclaredModel(model_path_, declaration_, *memory_));
  }
  return awaitDeclaredModel(model_path_, options_.cancelled);
}

Status ProgramHost::begin() {
  TY_ASSIGN_OR_RETURN(const DeclaredModel model, agreeOnModel());
  TY_RETURN_IF_ERROR(checkSame(model));
  buffers_.emplace(declaration_, *memory_, options_.checkpoint_dir, options_.kept);
  SessionOptions session;
  session.seed = options_.seed;
  session.samples = declaration_.samples;
  session.evaluation_samples = declaration_.eval_samples;
  std::vector<std::span<float>> weights;
  for (std::size_t v = 0; v < declaration_.variables.size(); ++v) {
    const session::DeclaredVariable& variable = declaration_.variables[v];
    trained_.push_back(variable.trainable ? static_cast<int>(weights.size()) : -1);
    if (!variable.trainable) continue;
    session.variables.push_back(variable.name);
    const std::span<std::byte> value = memory_->value(v);
    weights.emplace_back(reinterpret_cast<float*>(value.data()), value.size() / sizeof(float));
  }
  ProgramJob::Hosted hosted;
  if (declaration_.has_state) hosted.state = &state_;
  if (hasBeside()) hosted.beside = [this](std::int64_t version) { return copyBeside(version); };
  hosted.row_ids = [this](std::int64_t first, int count) { return rows_.at(first, count); };
  TY_ASSIGN_OR_RETURN(const ProgramJob::Member member,
                      job_.make(model, std::move(weights), std::move(hosted)));
  synchronizer_ = member.synchronizer;
  gradient_memory_ = synchronizer_->gradientMemory();
  if (gradient_memory_ == nullptr) gradient_memory_ = std::make_shared<RecycledMemory>();
  {
    std::lock_guard lock(mutex_);
    session_ = std::make_unique<TrainingSession>(std::move(session), *synchronizer_, observer_,
                                                 clock_, member.commit);
  }
  job_.join();
  return absl::OkStatus();
}

Status ProgramHost::over(const Status& end) {
  if (!end_) end_ = job_.leave(end);
  return *end_;
}

StatusOr<session::TurnMessage> ProgramHost::next(session::WaitingProgram& program) {
  if (session_ == nullptr) TY_RETURN_IF_ERROR(begin());
  state_.setWaiting(&program);
  StatusOr<session::TurnMessage> message = takeTurn();
  state_.setWaiting(nullptr);
  return message;
}

StatusOr<session::TurnMessage> ProgramHost::takeTurn() {
  memory_->setInterrupted(false);
  in_turn_ = false;
  if (made_ >= 0) TY_RETURN_IF_ERROR(keepIfDue(made_));
  const StatusOr<Turn> turn = session_->next();
  // How the program ended is known to whoever started it.
  if (!state_.failure().ok()) return state_.failure();
  if (!turn.ok()) return over(turn.status());
  turn_ = *turn;
  pushed_ = absl::OkStatus();
  TY_RETURN_IF_ERROR(restore(turn_));
  TY_RETURN_IF_ERROR(keepLast(turn_));
  in_turn_ = true;
  begun_ = true;
  if (turn_.kind == Turn::Kind::kTrain) trained_since_kept_ = true;
  if (!rows_.none() && !isOver(turn_.kind))
    rows_.beginTurn(*session_->rowExchange(), turn_.kind == Turn::Kind::kTrain);
  if (isOver(turn_.kind)) TY_RETURN_IF_ERROR(over(absl::OkStatus()));
  return messageOf(turn_);
}

StatusOr<std::function<Status()>> ProgramHost::copyBeside(std::int64_t version) {
  std::function<Status()> state = [] { return absl::OkStatus(); };
  if (declaration_.has_state) {
    TY_ASSIGN_OR_RETURN(state, state_.keep(version));
  }
  std::function<Status()> buffers = [] { return absl::OkStatus(); };
  if (buffers_->any()) buffers = buffers_->keep(version);
  return [state = std::move(state), buffers = std::move(buffers)] {
    TY_RETURN_IF_ERROR(state());
    return buffers();
  };
}

bool ProgramHost::isKept(std::int64_t step) const {
  return (!declaration_.has_state || state_.has(step)) && (!buffers_->any() || buffers_->has(step));
}

// Before the first turn. The state of a program in a ring has come with the weights. At the job's
// beginning all have what they began with, whether the first checkpoint is there already or not.
Status ProgramHost::restore(const Turn& turn) {
  if (begun_ || isOver(turn.kind)) return absl::OkStatus();
  if (turn.step == 0 && buffers_->any() && !options_.init_from.empty())
    TY_RETURN_IF_ERROR(readInitialBuffers(options_.init_from, declaration_, *memory_));
  if (buffers_->any() && turn.step > 0) TY_RETURN_IF_ERROR(buffers_->restore(turn.step));
  const bool from_file = declaration_.has_state && !options_.workers_update;
  return from_file ? state_.restore(turn.step) : absl::OkStatus();
}

Status ProgramHost::keepIfDue(std::int64_t version) {
  if (options_.workers_update || !options_.chief || !hasBeside()) return absl::OkStatus();
  std::vector<std::int64_t> due =
      job_.keepDue(version, kept_beside_, [this](std::int64_t step) { return isKept(step); });
  std::erase(due, kept_beside_);
  return keepEach(due);
}

// What belongs to the last checkpoints, which the chief's own last step need not have made. A
// finished job was scored with what there is now: a pass whose gradients came too late to count may
// have changed it since it was kept.
Status ProgramHost::keepLast(const Turn& turn) {
  if (options_.workers_update || !options_.chief || !hasBeside()) return absl::OkStatus();
  const bool stopped = turn.kind == Turn::Kind::kStopped && kept_beside_ != turn.step;
  const bool done = turn.kind == Turn::Kind::kDone && (trained_since_kept_ || !isKept(turn.step));
  if (!stopped && !done) return absl::OkStatus();
  std::vector<std::int64_t> due =
      job_.keepMissed(turn.step, kept_beside_, [this](std::int64_t step) { return isKept(step); });
  due.push_back(turn.step);
  return keepEach(due);
}

Status ProgramHost::keepEach(const std::vector<std::int64_t>& steps) {
  for (const std::int64_t step : steps) TY_RETURN_IF_ERROR(keep(step));
  return absl::OkStatus();
}

// Training goes on where it cannot be written, as it does without a checkpoint.
Status ProgramHost::keep(std::int64_t step) {
  TY_ASSIGN_OR_RETURN(const std::function<Status()> write, copyBeside(step));
  kept_beside_ = step;
  trained_since_kept_ = false;
  hitFailpoint("worker.beside", step);
  const Status written = write();
  if (!written.ok())
    TY_WARN("what goes beside the checkpoint of step {}: {}", step, fromAbsl(written.message()));
  return absl::OkStatus();
}

session::TurnMessage ProgramHost::messageOf(const Turn& turn) {
  session::TurnMessage message;
  message.turn = turn;
  if (turn.kind == Turn::Kind::kTrain) {
    const auto samples = session_->samples();
    message.samples.assign(samples.begin(), samples.end());
    session_->computing();
  } else if (turn.kind == Turn::Kind::kEvaluate) {
    const auto [first, last] = session_->evaluationRange();
    message.turn.first_position = first;
    message.turn.samples = static_cast<int>(last - first);
  }
  return message;
}

void ProgramHost::push(std::uint32_t variable) {
  // A step that this worker has no samples in: its gradients are nothing.
  if (turn_.samples == 0) return;
  const Status pushed = session_->push(gradientOf(variable));
  if (pushed_.ok()) pushed_ = pushed;
}

Gradient ProgramHost::gradientOf(std::uint32_t variable) const {
  Gradient gradient;
  gradient.variable = trained_[variable];
  gradient.values = memory_->gradient(variable);
  if (synchronizer_->copiesGradients()) return gradient;
  auto copy = std::make_shared<GradientCopy>(gradient.values, gradient_memory_);
  gradient.values = copy->values;
  gradient.owner = std::move(copy);
  return gradient;
}

Status ProgramHost::checkPass(const session::Finish& finish) const {
  TY_RETURN_IF_ERROR(pushed_);
  if (finish.samples != turn_.samples) {
    return absl::InvalidArgumentError(fmt::format("step {}: {} samples were computed, it has {}",
                                                  turn_.step, finish.samples, turn_.samples));
  }
  if (finish.hits <= finish.samples) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("step {}: {} hits of {} samples", turn_.step, finish.hits, finish.samples));
}

StatusOr<session::Outcome> ProgramHost::finish(const session::Finish& finish) {
  TY_RETURN_IF_ERROR(checkPass(finish));
  if (!rows_.none()) rows_.pushAll();
  return outcomeOf(session_->finish(lossOf(finish)));
}

StatusOr<session::Outcome> ProgramHost::sum(const session::Finish& finish) {
  TY_RETURN_IF_ERROR(checkPass(finish));
  StepCommit::Arrays means;
  for (std::size_t v = 0; v < trained_.size(); ++v)
    if (trained_[v] >= 0) means.push_back(memory_->gradient(v));
  const auto summed = session_->sum(lossOf(finish), means);
  if (!summed.ok()) return over(summed.status());
  if (!summed->has_value()) return session::Outcome{};
  const SummedStep& step = **summed;
  return session::Outcome{.complete = true,
                          .too_late = false,
                          .step = step.step,
                          .loss = step.loss,
                          .gradient_norm = step.gradient_norm};
}

StatusOr<session::Outcome> ProgramHost::commit() {
  return outcomeOf(session_->commit());
}

StatusOr<session::Outcome> ProgramHost::outcomeOf(const StatusOr<StepOutcome>& made) {
  if (!made.ok()) return over(made.status());
  if (made->complete) {
    made_ = made->step + 1;
    state_.setChanged();
  }
  return session::Outcome{.complete = made->complete,
                          .too_late = made->too_late,
                          .step = made->complete ? made->step : turn_.step,
                          .loss = made->loss,
                          .gradient_norm = made->gradient_norm};
}

void ProgramHost::evaluated(const session::Score& score) {
  session_->evaluated(score);
}

void ProgramHost::abort(std::string_view why) {
  if (synchronizer_ == nullptr || end_) return;
  synchronizer_->abort(turn_.step, "", why);
  awaitFailure();
}

// Nothing that would complete a step is handed over any more, so all that follows waits for the
// job's end.
void ProgramHost::awaitFailure() {
  for (;;) {
    if (!in_turn_) {
      // It gave up while it was asked for its state.
    } else if (turn_.kind == Turn::Kind::kTrain) {
      const StatusOr<StepOutcome> outcome = synchronizer_->finish({});
      if (!outcome.ok()) return over(outcome.status()).IgnoreError();
    } else {
      synchronizer_->evaluated({});
    }
    const StatusOr<Turn> turn = synchronizer_->next();
    if (!turn.ok() || isOver(turn->kind)) return over(turn.status()).IgnoreError();
    turn_ = *turn;
    in_turn_ = true;
  }
}

void ProgramHost::tellInterrupted() {
  if (session_ != nullptr && session_->interrupted()) memory_->setInterrupted(true);
}

TrainTotals ProgramHost::totals() const {
  std::lock_guard lock(mutex_);
  return session_ != nullptr ? session_->totals() : TrainTotals();
}

}  // namespace trainyard::runtime
