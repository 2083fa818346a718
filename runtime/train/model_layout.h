// What a job's model is made of, as whoever places or serves it sees it.
#pragma once

#include <vector>

#include "runtime/catalog/variable.h"

namespace trainyard::runtime {

struct ModelLayout {
  // global_step first: the catalogue's, or the parameters of a TorchScript module that require
  // gradients, in the module's order.
  std::vector<Variable> variables;
  // By variable, empty where initialise() gives the values: what a TorchScript file brings along.
  std::vector<std::vector<float>> values;
};

}  // namespace trainyard::runtime
