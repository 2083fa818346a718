#include "operator/record/status_diff.h"

#include "gmock/gmock.h"

namespace trainyard::control {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

v1::JobStatus status(const std::string& state, int ready) {
  v1::JobStatus status;
  status.set_state(state);
  status.mutable_worker()->set_ready(ready);
  status.set_start_time("2026-01-01T00:00:00Z");
  return status;
}

void addCondition(v1::JobStatus* status, const std::string& value, const std::string& reason) {
  v1::Condition* condition = status->add_conditions();
  condition->set_type("Running");
  condition->set_status(value);
  condition->set_reason(reason);
  condition->set_message("any");
}

TEST(StatusDiff, NamesWhatChanged) {
  v1::JobStatus before = status("Created", 0), after = status("Running", 2);
  addCondition(&before, "False", "TasksNotReady");
  addCondition(&after, "True", "AllTasksReady");
  EXPECT_THAT(diffStatus(before, after),
              ElementsAre("state: Created -> Running", "worker.ready: 0 -> 2",
                          "conditions.Running: False (TasksNotReady) -> True (AllTasksReady)"));
  EXPECT_THAT(diffStatus(after, after), IsEmpty());
}

TEST(StatusDiff, NamesWhatCameAndWent) {
  v1::JobStatus before = status("Running", 1), after = status("Running", 1);
  v1::TaskRecord* record = after.add_tasks();
  record->set_task("worker-1");
  record->set_created(2);
  before.mutable_checkpoint()->set_step(10);
  EXPECT_THAT(diffStatus(before, after),
              ElementsAre("tasks.worker-1.created: - -> 2", "checkpoint.step: 10 -> -"));
}

TEST(StatusDiff, LeavesTimesOut) {
  v1::JobStatus before = status("Running", 1), after = status("Running", 1);
  after.set_start_time("2027-01-01T00:00:00Z");
  after.mutable_checkpoint()->set_time("2027-01-01T00:00:00Z");
  EXPECT_THAT(diffStatus(before, after), IsEmpty());
}

}  // namespace
}  // namespace trainyard::control
