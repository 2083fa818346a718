#include "runtime/coordinator/rest.h"

namespace trainyard::runtime {

// Sync: all hold it, and one of them, which the next step needs, has said so since it was asked.
// Backup workers: all hold it, and no place is given in the step that follows. Asynchronous: all
// pushes that were let begin are finished.
std::optional<std::int64_t> Rest::version(const Membership& membership, const Epochs& epochs,
                                          const JobSteps& steps, const Tickets& tickets) const {
  if (const PushTickets* pushes = tickets.pushes())
    return pushes->drained() ? std::optional(pushes->version()) : std::nullopt;
  const bool backup = steps.plan().backup_workers > 0;
  std::int64_t rest = backup ? tickets.openStep() : -1;
  std::int64_t version = -1;
  for (const auto& [key, member] : membership.members()) {
    if (key.role != v1::ROLE_WORKER || !member.in_epoch) continue;
    const v1::WorkerState& worker = member.report.worker();
    if (worker.epoch() != epochs.number()) return std::nullopt;
    if (version >= 0 && worker.version() != version) return std::nullopt;
    version = worker.version();
    if (!backup && worker.idle() && member.report.seen_view() >= since_) rest = version;
  }
  if (rest < 0 || rest != version) return std::nullopt;
  return version;
}

}  // namespace trainyard::runtime
