#include "operator/local/command_file.h"

#include "base/process/files.h"
#include "nlohmann/json.hpp"
#include "operator/job/template.h"
#include "operator/local/volumes.h"

namespace trainyard::control {

Status writeCommandFile(const std::filesystem::path& path, const v1::TrainingJob& job,
                        v1::Role role) {
  using Json = nlohmann::ordered_json;
  TY_ASSIGN_OR_RETURN(const TaskCommand command, taskCommand(job, role));
  Json file;
  file["argv"] = command.argv;
  file["env"] = Json::array();
  for (const auto& [name, value] : command.env) file["env"].push_back(Json::array({name, value}));
  file["workingDir"] = command.working_dir;
  file["volumes"] = Json::object();
  for (const auto& [name, folder] : volumeFolders(job.spec())) file["volumes"][name] = folder;
  return writeFileAtomically(path, file.dump(2) + "\n", 0600);
}

}  // namespace trainyard::control
