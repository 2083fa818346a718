// The definition of TrainingJob that this release brings (deploy/crds.yaml), beside that of a
// cluster.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace trainyard::control {

// Paths of fields ("spec.worker.minReplicas"), without those below a field that is named itself.
struct DefinitionDifference {
  std::vector<std::string> missing;  // this release has them, the other definition has not
  std::vector<std::string> unknown;  // the other way round
};

// `schema`: openAPIV3Schema of the other definition, or what the apiserver publishes of it. Rules
// and defaults are not compared. Pure.
DefinitionDifference compareDefinition(const nlohmann::json& schema);

}  // namespace trainyard::control
