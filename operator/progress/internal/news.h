// What an agent's newer answer means to whoever reconciles its job.
#pragma once

#include "trainyard/v1/agent.pb.h"

namespace trainyard::control {

enum class News {
  kNone,      // nothing that a planner reads
  kProgress,  // the job has got on: may be told of later, with what comes until then
  kState,     // something that may have to be acted on
};

// `known` is what the same task's agent answered last, empty where nothing is known.
News newsOf(const v1::TaskState& known, const v1::TaskState& now);

}  // namespace trainyard::control
