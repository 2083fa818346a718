#include "operator/job/definition.h"

#include "base/json/members.h"
#include "operator/job/internal/path.h"
#include "operator/job/internal/schema.h"

namespace trainyard::control {
namespace {

// Fields of `a` that `b` has not, at and below `path`.
void findMissing(const nlohmann::json& a, const nlohmann::json& b, const std::string& path,
                 std::vector<std::string>& missing) {
  for (const auto& [keyword, suffix] :
       {std::pair("items", "[]"), std::pair("additionalProperties", ".*")}) {
    const nlohmann::json& inner = member(a, keyword);
    if (inner.is_object()) findMissing(inner, member(b, keyword), path + suffix, missing);
  }
  const nlohmann::json& others = member(b, "properties");
  for (const auto& [name, schema] : member(a, "properties").items()) {
    const std::string field = internal::childPath(path, name);
    if (others.is_object() && others.contains(name)) {
      findMissing(schema, others[name], field, missing);
    } else {
      missing.push_back(field);
    }
  }
}

}  // namespace

DefinitionDifference compareDefinition(const nlohmann::json& schema) {
  static const nlohmann::json kOurs = internal::jobSchema();
  DefinitionDifference difference;
  for (const char* part : {"spec", "status"}) {
    const nlohmann::json& ours = member(member(kOurs, "properties"), part);
    const nlohmann::json& theirs = member(member(schema, "properties"), part);
    findMissing(ours, theirs, part, difference.missing);
    findMissing(theirs, ours, part, difference.unknown);
  }
  return difference;
}

}  // namespace trainyard::control
