// Which tasks a job has: sets of indices as a status holds them.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "operator/cluster/cluster.h"

namespace trainyard::control {

// {0,1,2,5} <-> "0-2,5". Parts that do not parse are skipped: the text is our own, and a set that
// is too small only costs a look. At most 65536 indices are read from one text.
std::string formatIndices(const std::set<std::uint32_t>& indices);
std::set<std::uint32_t> parseIndices(std::string_view text);

// Every task that the job wants, sorted: those that its status lists, and the lowest free indices
// up to the number that the spec asks for. Indices may have gaps (conditions.md, "Who leaves").
std::vector<TaskKey> wantedTasks(const v1::TrainingJob& job);

// The task whose runtime hosts the coordinator.
TaskKey coordinatorOf(const v1::JobSpec& spec);

}  // namespace trainyard::control
