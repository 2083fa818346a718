// The order in which a program may say things; both ends keep one, the program's to tell its author
// at once, the member's because what comes from outside is not trusted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/core/status.h"
#include "runtime/session/message.h"

namespace trainyard::runtime::session {

// Each call is one message; INVALID_ARGUMENT says what should have come in its place, and changes
// nothing.
class TurnOrder {
 public:
  // Once, before all else. Of the declaration is kept which variables are trained, and who makes
  // the update.
  Status declare(const Declaration& declaration);
  // When no turn is open. `begin()` follows with what the member answered.
  Status next() const;
  void begin(const Turn& turn);
  // In a turn to train: each variable that is trained, once. A turn without samples needs none.
  Status push(std::uint32_t variable);
  // In a turn to train or to evaluate: rows are looked up.
  Status lookUp() const;
  // In a turn to train, until its end: their gradients, and what comes next.
  Status pushRows() const;
  Status lookAhead() const;
  // In a turn to train, until its end: so many of its samples were told right.
  Status countHits(std::int64_t hits) const;
  // When all have been pushed; ends the turn.
  Status finish();
  // Instead of it, where the program makes the update: when all have been pushed. `summed()`
  // follows with what the member answered: a step that is complete is to be committed, which ends
  // the turn, one that is not has ended.
  Status sum();
  void summed(bool complete);
  Status commit();
  // In a turn to save; ends it. One to load needs no word.
  Status save();
  bool loading() const { return turn_ == Turn::Kind::kLoad; }
  // In a turn to evaluate; ends it.
  Status evaluated();
  // Whether samples may be scored now.
  Status scores() const;

  // The job is over: nothing may follow.
  bool over() const { return over_; }

 private:
  Status step(bool own_update) const;

  std::vector<bool> trained_;  // by variable; empty: not declared
  bool own_update_ = false;
  std::vector<bool> pushed_;  // of the turn
  int samples_ = 0;           // of the turn
  bool summed_ = false;       // and not committed
  std::optional<Turn::Kind> turn_;
  bool over_ = false;
};

}  // namespace trainyard::runtime::session
