// A list of undo steps: each part of a start pushes its inverse; leaving the scope runs them in
// reverse order, so that a failed start and an ordinary stop take the same way back.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace trainyard {

// Not thread-safe. Steps must not throw.
class ScopeUndo {
 public:
  ScopeUndo() = default;
  ScopeUndo(const ScopeUndo&) = delete;
  ScopeUndo& operator=(const ScopeUndo&) = delete;
  ~ScopeUndo() { run(); }

  void push(std::function<void()> step) { steps_.push_back(std::move(step)); }

  // Runs the steps now, newest first; each at most once.
  void run() {
    while (!steps_.empty()) {
      std::function<void()> step = std::move(steps_.back());
      steps_.pop_back();
      step();
    }
  }

  // Forgets the steps: what was set up stays.
  void dismiss() { steps_.clear(); }

 private:
  std::vector<std::function<void()>> steps_;
};

}  // namespace trainyard
