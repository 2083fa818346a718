// The C interface: sessions.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "fmt/format.h"
#include "runtime/client/errors.h"
#include "runtime/client/handles.h"
#include "runtime/client/interrupt.h"

namespace trainyard::runtime::client {
namespace {

ty_code deadSession(const char* function) {
  return tell(deadHandle(fmt::format("{}: the session is not of this process", function).c_str()));
}

StatusOr<session::DeclaredVariable> variableOf(const ty_variable& given, std::size_t at) {
  const bool known = given.name != nullptr && given.type >= 0 && given.type < kElementTypes &&
                     (given.shape != nullptr || given.dimensions == 0);
  if (!known) {
    return absl::InvalidArgumentError(
        fmt::format("ty_session_declare: variable {} without name, shape or type", at));
  }
  session::DeclaredVariable variable;
  variable.name = given.name;
  variable.shape.assign(given.shape, given.shape + given.dimensions);
  variable.type = static_cast<ElementType>(given.type);
  variable.trainable = given.trained != 0;
  if (variable.trainable && variable.type != ElementType::kFloat32) {
    return absl::InvalidArgumentError(
        fmt::format("ty_session_declare: {} is {}; what is trained "
                    "is float32",
                    variable.name, nameOf(variable.type)));
  }
  return variable;
}

// What a caller of an earlier version did not know of it has not brought.
template <typename Member>
bool has(const ty_model& model, const Member& member) {
  const auto* const begin = reinterpret_cast<const char*>(&model);
  const auto* const end = reinterpret_cast<const char*>(&member + 1);
  return static_cast<std::size_t>(end - begin) <= model.bytes;
}

bool isModel(const ty_model* model) {
  return model != nullptr && model->bytes >= offsetof(ty_model, own_update) &&
         model->bytes <= sizeof(ty_model) && (model->variables != nullptr || model->count == 0);
}

StatusOr<session::Declaration> declarationOf(const ty_model& model) {
  session::Declaration declaration;
  declaration.own_update = has(model, model.own_update) && model.own_update != 0;
  declaration.has_state = has(model, model.has_state) && model.has_state != 0;
  declaration.samples = model.samples;
  declaration.eval_samples = model.eval_samples;
  for (std::size_t v = 0; v < model.count; ++v) {
    TY_ASSIGN_OR_RETURN(session::DeclaredVariable variable, variableOf(model.variables[v], v));
    declaration.variables.push_back(std::move(variable));
  }
  return declaration;
}

void fill(const session::TurnMessage& message, ty_turn& turn) {
  turn.kind = static_cast<int>(message.turn.kind);
  turn.rank = message.turn.rank;
  turn.ranks = message.turn.ranks;
  turn.step = message.turn.step;
  turn.epoch = message.turn.epoch;
  turn.first_position = message.turn.first_position;
  turn.samples = message.turn.samples;
  turn.step_samples = message.turn.step_samples;
  const bool trains = message.turn.kind == Turn::Kind::kTrain;
  turn.sample_numbers = trains ? message.samples.data() : nullptr;
}

ty_code fill(const StatusOr<session::Outcome>& made, ty_outcome& outcome) {
  if (!made.ok()) return tell(made.status(), Stage::kSession);
  outcome.complete = made->complete ? 1 : 0;
  outcome.too_late = made->too_late ? 1 : 0;
  outcome.step = made->step;
  outcome.loss = made->loss;
  outcome.gradient_norm = made->gradient_norm.value_or(-1);
  return TY_OK;
}

bool isOutcome(const ty_outcome* outcome) {
  return outcome != nullptr && outcome->bytes == sizeof(ty_outcome);
}

Status checkEnd(const char* function, int64_t samples, const ty_outcome* outcome) {
  if (isOutcome(outcome) && samples >= 0 && samples <= std::numeric_limits<std::int32_t>::max())
    return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{}: a ty_outcome of another size, or a number of samples that is none", function));
}

// Null where there is none.
const session::SessionTable* tableOf(const ty_session* session, size_t number) {
  if (!isAlive(session)) return nullptr;
  const auto& tables = session->session->welcome().tables;
  return number < tables.size() ? &tables[number] : nullptr;
}

ty_code noTable(const char* function) {
  return tell(absl::InvalidArgumentError(
      fmt::format("{}: the job has no such table, or what was given is not there", function)));
}

// Whether `variable` is one of the declared ones, which have memory.
const session::DeclaredVariable* declared(const ty_session* session, std::size_t variable) {
  if (!isAlive(session)) return nullptr;
  const auto& variables = session->session->declaration().variables;
  return variable < variables.size() ? &variables[variable] : nullptr;
}

}  // namespace
}  // namespace trainyard::runtime::client

using namespace trainyard;                   // NOLINT: what follows is C
using namespace trainyard::runtime::client;  // NOLINT

static_assert(static_cast<int>(runtime::session::Combining::kSum) == TY_SUM_ROWS);
static_assert(static_cast<int>(runtime::session::Combining::kMean) == TY_MEAN_ROWS);
static_assert(static_cast<int>(runtime::session::Combining::kSqrtN) == TY_SQRTN_ROWS);
static_assert(static_cast<int>(runtime::Turn::Kind::kTrain) == TY_TRAIN);
static_assert(static_cast<int>(runtime::Turn::Kind::kEvaluate) == TY_EVALUATE);
static_assert(static_cast<int>(runtime::Turn::Kind::kDone) == TY_DONE);
static_assert(static_cast<int>(runtime::Turn::Kind::kStopped) == TY_STOPPED);
static_assert(static_cast<int>(runtime::Turn::Kind::kLeft) == TY_LEFT);
static_assert(static_cast<int>(runtime::Turn::Kind::kSave) == TY_SAVE);
static_assert(static_cast<int>(runtime::Turn::Kind::kLoad) == TY_LOAD);

extern "C" {

ty_code ty_session_open(const char* path, const char* program, ty_session** session) {
  if (path == nullptr || program == nullptr || session == nullptr) {
    return tell(absl::InvalidArgumentError(
        "ty_session_open: a path, a program and a place for the result"));
  }
  auto opened = runtime::session::ProgramSession::open(path, program, isInterrupted);
  if (!opened.ok()) return tell(opened.status(), Stage::kForming);
  *session = std::make_unique<ty_session>(*std::move(opened)).release();
  return TY_OK;
}

void ty_session_free(ty_session* session) {
  if (!isAlive(session)) return;
  const std::unique_ptr<ty_session> owned(session);
  owned->sockets.clear();
}

const char* ty_session_job(const ty_session* session) {
  return isAlive(session) ? session->session->welcome().job.c_str() : "";
}

int ty_session_index(const ty_session* session) {
  return isAlive(session) ? session->session->welcome().index : -1;
}

ty_code ty_session_declare(ty_session* session, const ty_model* model) {
  if (!isAlive(session)) return deadSession("ty_session_declare");
  if (!isModel(model)) {
    return tell(absl::InvalidArgumentError("ty_session_declare: a ty_model of another size"));
  }
  auto declaration = declarationOf(*model);
  if (!declaration.ok()) return tell(declaration.status());
  const std::int64_t samples = declaration->samples;
  const Status taken = session->session->declare(*std::move(declaration));
  if (taken.ok()) session->stream.emplace(session->session->welcome().seed, samples);
  return tell(taken, Stage::kForming);
}

ty_code ty_session_sample_numbers(ty_session* session, int64_t first, int64_t count,
                                  int64_t* numbers) {
  if (!isAlive(session)) return deadSession("ty_session_sample_numbers");
  if (!session->stream || first < 0 || count < 0 || (numbers == nullptr && count > 0)) {
    return tell(absl::InvalidArgumentError(
        "ty_session_sample_numbers: before ty_session_declare, or no place or number of them"));
  }
  session->stream->lookUp(first, {numbers, static_cast<std::size_t>(count)});
  return TY_OK;
}

void* ty_session_value(ty_session* session, size_t variable) {
  if (declared(session, variable) == nullptr) return nullptr;
  return session->session->value(variable).data();
}

float* ty_session_gradient(ty_session* session, size_t variable) {
  const auto* const known = declared(session, variable);
  if (known == nullptr || !known->trainable) return nullptr;
  return session->session->gradient(variable).data();
}

ty_code ty_session_next(ty_session* session, ty_turn* turn) {
  if (!isAlive(session)) return deadSession("ty_session_next");
  if (turn == nullptr || turn->bytes != sizeof(ty_turn))
    return tell(absl::InvalidArgumentError("ty_session_next: a ty_turn of another size"));
  auto next = session->session->next();
  if (!next.ok()) return tell(next.status(), Stage::kSession);
  session->turn = *std::move(next);
  fill(session->turn, *turn);
  return TY_OK;
}

ty_code ty_session_push(ty_session* session, size_t variable) {
  if (!isAlive(session)) return deadSession("ty_session_push");
  // What does not fit is no variable either.
  const auto number = static_cast<std::uint32_t>(
      std::min<std::size_t>(variable, std::numeric_limits<std::uint32_t>::max()));
  return tell(session->session->push(number), Stage::kSession);
}

size_t ty_session_tables(const ty_session* session) {
  return isAlive(session) ? session->session->welcome().tables.size() : 0;
}

ty_code ty_session_table(const ty_session* session, size_t number, ty_table* table) {
  if (!isAlive(session)) return deadSession("ty_session_table");
  const auto* const known = tableOf(session, number);
  if (known == nullptr || table == nullptr || table->bytes != sizeof(ty_table))
    return noTable("ty_session_table");
  table->name = known->name.c_str();
  table->dim = known->dim;
  table->combiner = static_cast<int>(known->combiner);
  return TY_OK;
}

ty_code ty_session_rows(ty_session* session, size_t table, const uint64_t* ids, size_t count,
                        float* rows) {
  if (!isAlive(session)) return deadSession("ty_session_rows");
  const auto* const known = tableOf(session, table);
  if (known == nullptr || (count > 0 && (ids == nullptr || rows == nullptr)))
    return noTable("ty_session_rows");
  const runtime::session::LookUp look_up{static_cast<std::uint32_t>(table), {ids, ids + count}};
  return tell(session->session->lookUp(look_up, {rows, count * known->dim}), Stage::kSession);
}

ty_code ty_session_push_rows(ty_session* session, size_t table, const uint64_t* ids,
                             const uint32_t* counts, size_t count, const float* gradients) {
  if (!isAlive(session)) return deadSession("ty_session_push_rows");
  const auto* const known = tableOf(session, table);
  if (known == nullptr || (count > 0 && (ids == nullptr || gradients == nullptr)))
    return noTable("ty_session_push_rows");
  runtime::session::PushRows push;
  push.table = static_cast<std::uint32_t>(table);
  push.ids.assign(ids, ids + count);
  push.counts.assign(count, 1);
  if (counts != nullptr) push.counts.assign(counts, counts + count);
  push.sums.assign(gradients, gradients + count * known->dim);
  return tell(session->session->pushRows(push), Stage::kSession);
}

ty_code ty_session_look_ahead(ty_session* session, int64_t first, int64_t count,
                              const uint64_t* const* ids, const size_t* counts) {
  if (!isAlive(session)) return deadSession("ty_session_look_ahead");
  const std::size_t tables = session->session->welcome().tables.size();
  const bool fits = 1 <= count && count <= std::numeric_limits<std::int32_t>::max() && first >= 0;
  if (!fits || (tables > 0 && (ids == nullptr || counts == nullptr)))
    return noTable("ty_session_look_ahead");
  runtime::session::LookAhead ahead{first, static_cast<std::int32_t>(count), {}};
  for (std::size_t t = 0; t < tables; ++t) {
    if (ids[t] == nullptr && counts[t] > 0) return noTable("ty_session_look_ahead");
    ahead.ids.emplace_back(ids[t], ids[t] + counts[t]);
  }
  return tell(session->session->lookAhead(ahead), Stage::kSession);
}

ty_code ty_session_count_hits(ty_session* session, int64_t hits) {
  if (!isAlive(session)) return deadSession("ty_session_count_hits");
  return tell(session->session->countHits(hits));
}

ty_code ty_session_finish(ty_session* session, double loss_sum, int64_t samples,
                          ty_outcome* outcome) {
  if (!isAlive(session)) return deadSession("ty_session_finish");
  const Status given = checkEnd("ty_session_finish", samples, outcome);
  if (!given.ok()) return tell(given);
  return fill(session->session->finish(loss_sum, static_cast<int32_t>(samples)), *outcome);
}

ty_code ty_session_sum(ty_session* session, double loss_sum, int64_t samples, ty_outcome* outcome) {
  if (!isAlive(session)) return deadSession("ty_session_sum");
  const Status given = checkEnd("ty_session_sum", samples, outcome);
  if (!given.ok()) return tell(given);
  return fill(session->session->sum(loss_sum, static_cast<int32_t>(samples)), *outcome);
}

ty_code ty_session_commit(ty_session* session, ty_outcome* outcome) {
  if (!isAlive(session)) return deadSession("ty_session_commit");
  if (!isOutcome(outcome))
    return tell(absl::InvalidArgumentError("ty_session_commit: a ty_outcome of another size"));
  return fill(session->session->commit(), *outcome);
}

ty_code ty_session_evaluated(ty_session* session, int64_t hits, int64_t samples, double loss_sum) {
  if (!isAlive(session)) return deadSession("ty_session_evaluated");
  if (hits < 0 || samples < hits) {
    return tell(absl::InvalidArgumentError(
        fmt::format("ty_session_evaluated: {} hits of {} samples", hits, samples)));
  }
  return tell(session->session->evaluated(
                  {.hits = hits, .samples = samples, .loss_sum = loss_sum, .clicks = {}}),
              Stage::kSession);
}

ty_code ty_session_score_clicks(ty_session* session, const float* logits, const uint8_t* labels,
                                int64_t count, int64_t* hits, double* loss_sum) {
  if (!isAlive(session)) return deadSession("ty_session_score_clicks");
  const bool given = count == 0 || (logits != nullptr && labels != nullptr);
  if (count < 0 || !given || hits == nullptr || loss_sum == nullptr) {
    return tell(absl::InvalidArgumentError(
        fmt::format("ty_session_score_clicks: {} samples, or an address that is null", count)));
  }
  const auto size = static_cast<std::size_t>(count);
  const auto score = session->session->scoreClicks({logits, size}, {labels, size});
  if (!score.ok()) return tell(score.status(), Stage::kSession);
  *hits = score->hits;
  *loss_sum = score->loss_sum;
  return TY_OK;
}

ty_code ty_session_save(ty_session* session, const void* data, size_t bytes) {
  if (!isAlive(session)) return deadSession("ty_session_save");
  if (data == nullptr && bytes > 0)
    return tell(absl::InvalidArgumentError("ty_session_save: no data"));
  return tell(session->session->save({static_cast<const std::byte*>(data), bytes}),
              Stage::kSession);
}

ty_code ty_session_state(ty_session* session, const void** data, size_t* bytes) {
  if (!isAlive(session)) return deadSession("ty_session_state");
  if (data == nullptr || bytes == nullptr) {
    return tell(
        absl::InvalidArgumentError("ty_session_state: places for the state and its length"));
  }
  const auto state = session->session->state();
  if (!state.ok()) return tell(state.status(), Stage::kSession);
  *data = state->data();
  *bytes = state->size();
  return TY_OK;
}

int ty_session_interrupted(const ty_session* session) {
  return isAlive(session) && session->session->interrupted() ? 1 : 0;
}

ty_code ty_session_abort(ty_session* session, const char* why) {
  if (!isAlive(session)) return deadSession("ty_session_abort");
  return tell(session->session->abort(why == nullptr ? "" : why), Stage::kSession);
}

}  // extern "C"
