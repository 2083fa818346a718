// What the coordinator asks of the rim around it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "runtime/checkpoint/checkpoint.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// Answer a parked report.
struct ReplyAction {
  std::uint64_t ticket;
  v1::View view;
};
// Answer a question for a ticket, a place or samples.
struct TakeReplyAction {
  std::uint64_t call;
  v1::TakeReply reply;
};
// Write this manifest (and prune older ones), then call onCommitted.
struct CommitAction {
  Manifest manifest;  // what the coordinator knows; the rim adds model, data and time
};
// All is done: make that durable, then call onFinishRecorded. Without it a worker that dies after
// the last step could not learn that the others have left.
struct FinishAction {
  std::int64_t steps = 0;
  v1::Evaluation evaluation;
};
struct EvaluationAction {
  v1::Evaluation evaluation;
};
// Something worth a line in the log.
struct LogAction {
  std::string text;
  bool warning = false;
};
using CoordinatorAction = std::variant<ReplyAction, TakeReplyAction, CommitAction, FinishAction,
                                       EvaluationAction, LogAction>;

}  // namespace trainyard::runtime
