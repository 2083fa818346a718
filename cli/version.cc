#include "cli/version.h"

#include <memory>
#include <ostream>

#include "CLI/CLI.hpp"
#include "base/core/commit.h"
#include "base/core/exit_code.h"
#include "cli/command.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"

namespace trainyard::cli {

std::string versionText() {
  return TRAINYARD_VERSION;
}

nlohmann::ordered_json versionJson() {
  nlohmann::ordered_json json;
  json["version"] = versionText();
  json["commit"] = builtCommit();
  json["compiler"] = "gcc " __VERSION__;
  json["apiVersion"] = "trainyard.dev/v1alpha1";
  json["checkpointFormat"] = runtime::kCheckpointFormat;
  return json;
}

void registerVersion(CLI::App& app, ChosenCommand& chosen) {
  auto output = std::make_shared<std::string>("text");
  CLI::App* version = app.add_subcommand("version", "Show which build this is");
  version->add_option("-o,--output", *output, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  version->callback([output, &chosen] {
    chosen = [output](const Console& console) {
      if (*output == "json") {
        console.out << versionJson().dump(2) << std::endl;
      } else {
        console.out << "trainyard " << versionText() << std::endl;
      }
      return kExitOk;
    };
  });
}

}  // namespace trainyard::cli
