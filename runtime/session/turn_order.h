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
  // Once, before all else. The declaration is kept as far as variables are trained or not.
  Status declare(const Declaration& declaration);
  // When no turn is open. `begin()` follows with what the member answered.
  Status next() const;
  void begin(Turn::Kind kind);
  // In a turn to train: each variable that is trained, once.
  Status push(std::uint32_t variable);
  // When all have been pushed; ends the turn.
  Status finish();
  // In a turn to evaluate; ends it.
  Status evaluated();

  // The job is over: nothing may follow.
  bool over() const { return over_; }

 private:
  std::vector<bool> trained_;  // by variable; empty: not declared
  std::vector<bool> pushed_;   // of the turn
  std::optional<Turn::Kind> turn_;
  bool over_ = false;
};

}  // namespace trainyard::runtime::session
