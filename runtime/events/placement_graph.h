// Which parameter server holds which part of which variable, as a graph that TensorBoard draws: its
// page Graphs, coloured by device, shows the placement.
#pragma once

#include <string>

#include "runtime/placement/placement.h"

namespace trainyard::runtime {

// A GraphDef (tensorflow/core/framework/graph.proto), serialized. Each part of a variable is a node
// VariableV2 on /job:ps/task:N, named as TensorFlow does: "fc1_wei", or "fc1_wei/part_0" where it
// is cut. All are inputs of the node "model" on /job:worker. Of more than 1000 parts the first are
// shown. Pure.
std::string placementGraph(const Placement& placement);

}  // namespace trainyard::runtime
