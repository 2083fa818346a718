// The program's end of a session: what a training loop calls.
//
//   declare -> values in place -> { next -> push... -> finish | evaluated }... -> over
//
// Of a program that makes the update itself, sum -> values in place -> commit instead of finish.
// With state of its own also { next -> save | state }.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/core/status.h"
#include "runtime/session/channel.h"
#include "runtime/session/message.h"
#include "runtime/session/score.h"
#include "runtime/session/session_memory.h"
#include "runtime/session/state_memory.h"
#include "runtime/session/turn_order.h"

namespace trainyard::runtime::session {

// Of one thread, but for interrupted(). INVALID_ARGUMENT: the call is wrong, and the session goes
// on; every other error ends it: what the job failed with, UNAVAILABLE (the member is gone),
// CANCELLED.
class ProgramSession {
 public:
  // `path`: the member's socket. `program` is told to it, for its log. FAILED_PRECONDITION: the
  // member is of another version.
  static StatusOr<std::unique_ptr<ProgramSession>> open(const std::string& path,
                                                        const std::string& program,
                                                        const Cancelled& cancelled);

  const Welcome& welcome() const { return welcome_; }
  // Waits until the job has taken it. FAILED_PRECONDITION: it is not what the job has, and where.
  Status declare(Declaration declaration);
  const Declaration& declaration() const { return declaration_; }
  // Precondition of all below: declared. As of SessionMemory; `variable` must be one, and trained.
  std::span<std::byte> value(std::size_t variable) const { return memory_->value(variable); }
  std::span<float> gradient(std::size_t variable) const { return memory_->gradient(variable); }

  // The first call says that the values are those to begin with, where the job has none yet.
  // Afterwards they are those of the turn.
  StatusOr<TurnMessage> next();
  // The gradient is in place: the SUM over this worker's samples of the turn.
  Status push(std::uint32_t variable);
  // Rows of one of welcome().tables, in the order of the ids; of a turn that is void, zeros.
  // `rows`: [ids, dim].
  Status lookUp(const LookUp& look_up, std::span<float> rows);
  Status pushRows(const PushRows& push);
  // Which rows the samples there need, by table; they may come with their turn. Before finish().
  Status lookAhead(const LookAhead& ahead);
  // Of this worker's samples of the turn, those told right in this pass; before finish() or sum().
  Status countHits(std::int64_t hits);
  StatusOr<Outcome> finish(double loss_sum, std::int32_t samples);
  // Instead of it, with Declaration::own_update: the means over all workers' samples, the same bits
  // in all workers, are in place of the gradients where the outcome is complete. Then the values of
  // the next version are to be put in place and committed; otherwise the next turn is to be asked
  // for.
  StatusOr<Outcome> sum(double loss_sum, std::int32_t samples);
  StatusOr<Outcome> commit();
  // Samples of a turn to evaluate, as scoreOfClicks(): their hits and loss. What they tell of the
  // area under the ROC curve goes with evaluated(), to which the caller adds the rest.
  StatusOr<Score> scoreClicks(std::span<const float> logits, std::span<const std::uint8_t> labels);
  // `score` without clicks. INVALID_ARGUMENT: more clicks were scored than samples.
  Status evaluated(Score score);
  // Of a turn to save: the state, copied, as it is with the values in place.
  Status save(std::span<const std::byte> state);
  // Of a turn to load: the state to go on with, until the next next().
  StatusOr<std::span<const std::byte>> state() const;
  // The turn under way is void: a long evaluation may end early. Thread-safe.
  bool interrupted() const { return memory_.has_value() && memory_->interrupted(); }
  // A forked child must close it: the member would not learn of the program's death.
  int fd() const { return channel_.fd(); }
  // Ends the job, which gives `why` as its reason.
  Status abort(const std::string& why);

 private:
  ProgramSession(Channel channel, Cancelled cancelled)
      : channel_(std::move(channel)), cancelled_(std::move(cancelled)) {}

  Status sendRows(Kind kind, const std::string& body, const Status& readable);

  Channel channel_;
  Cancelled cancelled_;
  Welcome welcome_;
  Declaration declaration_;
  std::optional<SessionMemory> memory_;
  std::optional<StateMemory> state_;  // that is being handed over, either way
  TurnOrder order_;
  Score clicks_;            // of the turn: those scored so far
  std::int64_t hits_ = -1;  // of the turn: those counted, if any were
};

}  // namespace trainyard::runtime::session
