// What a run ran on: environment.json and the report's table of facts.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "trainyard/v1/job.pb.h"

namespace trainyard::cli {

// Version, CPU, cores and memory of this machine.
nlohmann::ordered_json describeMachine();

// What the first worker of the run in `dir` computes with, as it has written it: LibTorch, BLAS,
// the device. Null when it has not come so far.
nlohmann::ordered_json computesWith(const std::filesystem::path& dir);

// Name and value of what a reader of the report wants to know of the job, with what its tasks run
// (cli/run/programs.h), then of the machine.
std::vector<std::pair<std::string, std::string>> reportFacts(
    const v1::TrainingJob& job, const std::vector<std::string>& programs,
    const nlohmann::ordered_json& environment);

}  // namespace trainyard::cli
