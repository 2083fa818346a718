// The parts of collectCluster().
#pragma once

#include <string>

#include "cli/doctor/cluster_facts.h"
#include "cli/doctor/internal/questions.h"

namespace trainyard::cli {

StatusOr<DefinitionFacts> collectDefinition(Questions& questions);
// With what each may do in the namespace.
StatusOr<OperatorsFacts> collectOperators(Questions& questions, const ClusterPlace& place);

// What the user may do in the namespace, of what our verbs need.
StatusOr<std::vector<Right>> collectUserRights(Questions& questions, const std::string& ns);
// What the operator's account may do there, of what the chart gives it.
StatusOr<std::vector<Right>> collectOperatorRights(Questions& questions, const OperatorFacts& found,
                                                   const std::string& ns);

// Objects to facts. Pure.
DefinitionFacts definitionOf(const nlohmann::json& definition);
// Of /openapi/v3/apis/GROUP/VERSION, which everybody may read.
DefinitionFacts publishedDefinition(const nlohmann::json& document);
OperatorFacts operatorOf(const nlohmann::json& deployment);
NamespaceFacts namespaceOf(const nlohmann::json& object);
NodesFacts nodesOf(const std::vector<nlohmann::json>& nodes);
ClaimFacts claimOf(const nlohmann::json& claim);
StorageClassFacts storageClassOf(const nlohmann::json& object);
std::vector<QuotaUse> usedUp(const std::vector<nlohmann::json>& quotas);

}  // namespace trainyard::cli
