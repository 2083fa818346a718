// The member's end of a session: carries out what a program asks for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/session/channel.h"
#include "runtime/session/message.h"
#include "runtime/session/score.h"
#include "runtime/session/state_memory.h"

namespace trainyard::runtime::session {

// The program while it waits for its next turn: what its host has to ask of it before. Errors are
// the session's end.
class WaitingProgram {
 public:
  virtual ~WaitingProgram() = default;
  // Its state, as it goes with the weights of `version`, which are in place.
  virtual StatusOr<StateMemory> save(std::int64_t version) = 0;
  // It goes on with this one.
  virtual Status load(std::int64_t version, const StateMemory& state) = 0;
};

// The job's tables behind a session, as SessionHost.
class RowHost {
 public:
  virtual ~RowHost() = default;
  // [ids, dim] at the turn's version; of a turn that is void, zeros.
  virtual StatusOr<std::vector<float>> lookUp(const LookUp& look_up) = 0;
  virtual void push(const PushRows& push) = 0;
  virtual void lookAhead(LookAhead ahead) = 0;
};

// What stands behind a session: the job. Called on the thread of serve(), in an order that
// TurnOrder allows. An error is told to the program and ends the session.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  // Waits until the job has taken it, and says where its arrays are: in memory of the host's, made
  // when it knows that there is room for so much. FAILED_PRECONDITION: it is not what the job has.
  virtual StatusOr<MemoryPlace> declare(const Declaration& declaration) = 0;
  // Waits for the next thing to do, the values of which it has put in place. The first call: the
  // program has put its first values there. With Declaration::has_state `program` may be asked
  // until it returns.
  virtual StatusOr<TurnMessage> next(WaitingProgram& program) = 0;
  virtual void push(std::uint32_t variable) = 0;
  virtual StatusOr<Outcome> finish(const Finish& finish) = 0;
  // Instead of it, with Declaration::own_update. Complete: the means are in place of the gradients,
  // and commit() follows, the next version of the values in place.
  virtual StatusOr<Outcome> sum(const Finish& finish) = 0;
  virtual StatusOr<Outcome> commit() = 0;
  virtual void evaluated(const Score& score) = 0;
  // The program cannot go on.
  virtual void abort(std::string_view why) = 0;
  // Null: the job has no tables.
  virtual RowHost* rows() { return nullptr; }
};

// Until the program hangs up after the job is over (OK); before that: UNAVAILABLE. ABORTED: the
// program's own words. What the host failed with has been told to the program.
Status serve(Channel& channel, const Welcome& welcome, SessionHost& host,
             const Cancelled& cancelled);

}  // namespace trainyard::runtime::session
