#include "runtime/program/program_host.h"

#include <algorithm>
#include <memory_resource>
#include <utility>

#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

// A program may write its next gradients while those of a step that was given up are still on their
// way: what leaves is a copy, in memory from which servers of this machine read.
struct GradientCopy {
  GradientCopy(std::span<const float> from, std::shared_ptr<std::pmr::memory_resource> memory)
      : memory(std::move(memory)),
        values(from.begin(), from.end(),
               this->memory != nullptr ? this->memory.get() : std::pmr::get_default_resource()) {}

  std::shared_ptr<std::pmr::memory_resource> memory;
  std::pmr::vector<float> values;
};

bool isOver(Turn::Kind kind) {
  return kind != Turn::Kind::kTrain && kind != Turn::Kind::kEvaluate;
}

}  // namespace

ProgramHost::ProgramHost(Options options, ProgramJob& job, TrainObserver& observer,
                         const Clock& clock)
    : options_(std::move(options)), job_(job), observer_(observer), clock_(clock) {}

StatusOr<session::MemoryPlace> ProgramHost::declare(const session::Declaration& declaration) {
  TY_RETURN_IF_ERROR(checkDeclared(declaration));
  declaration_ = declaration;
  // What is known already needs no first weights to be refused.
  StatusOr<DeclaredModel> model = readDeclaredModel(options_.model_path);
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
    StatusOr<DeclaredModel> known = readDeclaredModel(options_.model_path);
    if (!absl::IsNotFound(known.status())) return known;
    TY_RETURN_IF_ERROR(writeDeclaredModel(options_.model_path, declaration_, *memory_));
  }
  return awaitDeclaredModel(options_.model_path, options_.cancelled);
}

Status ProgramHost::begin() {
  TY_ASSIGN_OR_RETURN(const DeclaredModel model, agreeOnModel());
  TY_RETURN_IF_ERROR(checkSame(model));
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
  TY_ASSIGN_OR_RETURN(synchronizer_, job_.make(model, std::move(weights)));
  gradient_memory_ = synchronizer_->gradientMemory();
  {
    std::lock_guard lock(mutex_);
    session_ =
        std::make_unique<TrainingSession>(std::move(session), *synchronizer_, observer_, clock_);
  }
  job_.join();
  return absl::OkStatus();
}

Status ProgramHost::over(const Status& end) {
  if (!end_) end_ = job_.leave(end);
  return *end_;
}

StatusOr<session::TurnMessage> ProgramHost::next() {
  if (session_ == nullptr) TY_RETURN_IF_ERROR(begin());
  memory_->setInterrupted(false);
  const StatusOr<Turn> turn = session_->next();
  if (!turn.ok()) return over(turn.status());
  turn_ = *turn;
  pushed_ = absl::OkStatus();
  session::TurnMessage message;
  message.turn = turn_;
  if (isOver(turn_.kind)) {
    TY_RETURN_IF_ERROR(over(absl::OkStatus()));
  } else if (turn_.kind == Turn::Kind::kTrain) {
    const auto samples = session_->samples();
    message.samples.assign(samples.begin(), samples.end());
    session_->computing();
  } else {
    const auto [first, last] = session_->evaluationRange();
    message.turn.first_position = first;
    message.turn.samples = static_cast<int>(last - first);
  }
  return message;
}

void ProgramHost::push(std::uint32_t variable) {
  // A step that this worker has no samples in: its gradients are nothing.
  if (turn_.samples == 0) return;
  auto copy = std::make_shared<GradientCopy>(memory_->gradient(variable), gradient_memory_);
  const std::span<const float> values = copy->values;
  const Status pushed =
      session_->push({.variable = trained_[variable], .values = values, .owner = std::move(copy)});
  if (pushed_.ok()) pushed_ = pushed;
}

StatusOr<session::Outcome> ProgramHost::finish(const session::Finish& finish) {
  TY_RETURN_IF_ERROR(pushed_);
  if (finish.samples != turn_.samples) {
    return absl::InvalidArgumentError(fmt::format("step {}: {} samples were computed, it has {}",
                                                  turn_.step, finish.samples, turn_.samples));
  }
  const StatusOr<StepOutcome> made =
      session_->finish({.loss_sum = finish.loss_sum, .samples = finish.samples});
  if (!made.ok()) return over(made.status());
  return session::Outcome{.complete = made->complete,
                          .too_late = made->too_late,
                          .step = made->step,
                          .loss = made->loss,
                          .gradient_norm = made->gradient_norm};
}

void ProgramHost::evaluated(const session::Score& score) {
  session_->evaluated({.hits = score.hits, .samples = score.samples, .loss_sum = score.loss_sum});
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
    if (turn_.kind == Turn::Kind::kTrain) {
      const StatusOr<StepOutcome> outcome = synchronizer_->finish({});
      if (!outcome.ok()) return over(outcome.status()).IgnoreError();
    } else {
      synchronizer_->evaluated({});
    }
    const StatusOr<Turn> turn = synchronizer_->next();
    if (!turn.ok() || isOver(turn->kind)) return over(turn.status()).IgnoreError();
    turn_ = *turn;
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
