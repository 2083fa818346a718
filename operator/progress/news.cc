#include "operator/progress/internal/news.h"

#include "google/protobuf/util/message_differencer.h"

namespace trainyard::control {

namespace {

using google::protobuf::util::MessageDifferencer;

// What is read of the job's progress beside how far it is.
bool sameState(const v1::JobProgress& a, const v1::JobProgress& b) {
  return a.outcome() == b.outcome() && a.failure() == b.failure() &&
         a.failure_reason() == b.failure_reason() && a.epoch() == b.epoch() &&
         a.lost_steps() == b.lost_steps() && a.has_checkpoint() == b.has_checkpoint();
}

bool sameState(const v1::TaskState& a, const v1::TaskState& b) {
  return a.created() == b.created() && a.start() == b.start() &&
         a.planned_starts() == b.planned_starts() && a.has_report() == b.has_report() &&
         a.report().has_job() == b.report().has_job() &&
         a.report().has_told() == b.report().has_told() &&
         sameState(a.report().job(), b.report().job());
}

}  // namespace

News newsOf(const v1::TaskState& known, const v1::TaskState& now) {
  if (!sameState(known, now)) return News::kState;
  const bool same = MessageDifferencer::Equals(known.report().job(), now.report().job()) &&
                    MessageDifferencer::Equals(known.report().told(), now.report().told());
  return same ? News::kNone : News::kProgress;
}

}  // namespace trainyard::control
