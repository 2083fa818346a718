#include "base/programs/job_file.h"

#include <cstddef>
#include <string>

#include "base/core/json_depth.h"
#include "base/json/proto_json.h"
#include "base/process/files.h"
#include "nlohmann/json.hpp"

namespace trainyard {
namespace {

constexpr std::size_t kMaxJobBytes = 4 << 20;

}  // namespace

StatusOr<v1::TrainingJob> readJobFile(const std::filesystem::path& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(path, kMaxJobBytes));
  if (jsonIsTooDeep(text)) return invalidInput(path.native(), "is nested too deeply");
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return invalidInput(path.native(), "is not JSON");
  v1::TrainingJob job;
  if (Status status = fromJson(json, &job); !status.ok()) return annotate(status, path.native());
  return job;
}

}  // namespace trainyard
