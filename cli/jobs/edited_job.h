// A job that runs and whose job.yaml somebody edits: what may change at once is taken over into
// job.json, where the controller sees it; all else is refused by name, and set back in job.yaml, so
// that it goes on to say what is trained.
#pragma once

#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "cli/live/snapshot.h"
#include "cli/run/directory.h"
#include "nlohmann/json.hpp"
#include "operator/local/run_directory.h"

namespace trainyard::cli {

// Fields that may change while a job of this spec runs, below spec: numbers of tasks, and what of
// the run policy says when to stop.
bool mayChangeLive(const FieldChange& change);

// Sets the fields of `changes` in a spec to what they are in `wanted`. Errors: the result is no
// spec.
Status applyChanges(const std::vector<FieldChange>& changes, const nlohmann::ordered_json& wanted,
                    v1::JobSpec* spec);

// Of one launcher, on one thread.
class EditedJob {
 public:
  EditedJob(control::RunPaths paths, const Clock& clock);

  // What somebody is to be told of edits since the last look: nothing, as a rule.
  std::vector<RunEvent> look();

 private:
  void takeOver(const std::string& text, std::vector<RunEvent>* events);
  bool stillSays(const std::string& text) const;
  void setBack(const std::string& text, const std::string& kept, std::vector<RunEvent>* events);
  void tell(const char* kind, std::string text, std::vector<RunEvent>* events) const;

  const control::RunPaths paths_;
  const Clock& clock_;
  std::string text_;             // of job.yaml, as seen last
  nlohmann::ordered_json spec_;  // what was taken over of it
};

}  // namespace trainyard::cli
