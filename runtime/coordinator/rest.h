// Workers rest after their step, to change or to stop, and where they do.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/coordinator/epochs.h"
#include "runtime/coordinator/job_steps.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/tickets.h"

namespace trainyard::runtime {

// Not thread-safe.
class Rest {
 public:
  // From the view of this sequence on they are asked to.
  void ask(std::uint64_t sequence) { since_ = sequence; }
  void end() { since_ = 0; }
  bool asked() const { return since_ > 0; }
  // The version that nobody can pass any more; nothing: some go on still.
  std::optional<std::int64_t> version(const Membership& membership, const Epochs& epochs,
                                      const JobSteps& steps, const Tickets& tickets) const;

 private:
  std::uint64_t since_ = 0;  // 0: they are not
};

}  // namespace trainyard::runtime
