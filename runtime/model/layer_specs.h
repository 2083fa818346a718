// The layers of the catalogue's models.
#pragma once

#include <vector>

#include "runtime/catalog/variable.h"
#include "runtime/model/network.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// `variables`: the catalogue's trainable ones, whose numbers are the parameters'.
std::vector<LayerSpec> layersOf(const v1::ModelSpec& spec, const std::vector<Variable>& variables);

}  // namespace trainyard::runtime
