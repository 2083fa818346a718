// A job's place in a queue for quota: what it asks for, and what it was granted. In Kubernetes that
// is a Workload of Kueue.
#pragma once

#include <optional>
#include <string>

namespace trainyard::control {

enum class QuotaEnd { kOpen, kSucceeded, kFailed };

// What a job tells its queue.
struct QuotaClaim {
  // Tasks that want room; they stay as they are while quota is held.
  int ps = 0;
  int workers = 0;
  int least_workers = 0;  // so many workers will do
  // So many of them need their room no more; never fewer than before while quota is held.
  int ps_done = 0;
  int workers_done = 0;
  bool ready = false;  // every task has come up
  QuotaEnd end = QuotaEnd::kOpen;

  bool operator==(const QuotaClaim&) const = default;
};

// Of a job that is to wait in a queue.
struct QuotaObservation {
  std::string queue;
  std::optional<QuotaClaim> claim;  // as recorded; nothing: it has not asked yet
  bool outdated = false;            // what its tasks ask for has changed since the claim was made
  bool held = false;                // room is kept for it
  bool granted = false;             // ... and its tasks may run
  bool withdrawn = false;           // ... but are to stop
  int workers_granted = 0;          // of claim->workers
  std::string message;              // why it waits or is to stop; "" where nobody has said
};

}  // namespace trainyard::control
