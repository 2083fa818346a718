// What the parts of a coordinator have to say, in the order in which they said it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/coordinator/actions.h"

namespace trainyard::runtime {

// Not thread-safe.
class Outbox {
 public:
  void add(CoordinatorAction action) { actions_.push_back(std::move(action)); }
  void log(std::string text, bool warning = false) { add(LogAction{std::move(text), warning}); }
  // The actions so far, each once.
  std::vector<CoordinatorAction> take() { return std::exchange(actions_, {}); }

  // The view says something new to every member, or to servers alone.
  void changed() { worker_sequence_ = ++sequence_; }
  void changedForServers() { ++sequence_; }
  // View.sequence, and that of the newest view with news for such a member.
  std::uint64_t sequence() const { return sequence_; }
  std::uint64_t newsFor(v1::Role role) const {
    return role == v1::ROLE_WORKER ? worker_sequence_ : sequence_;
  }

 private:
  std::vector<CoordinatorAction> actions_;
  std::uint64_t sequence_ = 1;
  std::uint64_t worker_sequence_ = 1;
};

}  // namespace trainyard::runtime
