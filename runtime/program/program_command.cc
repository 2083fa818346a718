#include "runtime/program/program_command.h"

#include "base/process/files.h"
#include "nlohmann/json.hpp"

namespace trainyard::runtime {
namespace {

constexpr std::size_t kMaxBytes = 8 << 20;

}  // namespace

StatusOr<ProgramCommand> readProgramCommand(const std::string& path) {
  using Json = nlohmann::ordered_json;
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(path, kMaxBytes));
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  ProgramCommand command;
  try {
    file.at("argv").get_to(command.argv);
    file.at("env").get_to(command.env);
    file.at("workingDir").get_to(command.working_dir);
  } catch (const Json::exception& error) {
    return invalidInput(path, error.what());
  }
  if (command.argv.empty()) return invalidInput(path, "argv: is empty");
  return command;
}

}  // namespace trainyard::runtime
