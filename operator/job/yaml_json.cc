#include "operator/job/yaml_json.h"

#include <vector>

#include "operator/job/internal/yaml.h"

namespace trainyard::control {

StatusOr<nlohmann::json> yamlToJson(std::string_view text, std::string_view file) {
  internal::YamlDocument document;
  std::vector<JobProblem> problems;
  if (!internal::readYaml(text, file, &document, &problems)) {
    return absl::InvalidArgumentError(problems.front().text());
  }
  return nlohmann::json(document.value);
}

}  // namespace trainyard::control
