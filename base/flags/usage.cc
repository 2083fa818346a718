#include "base/flags/usage.h"

#include <algorithm>
#include <ostream>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/printable.h"
#include "base/core/strings.h"
#include "fmt/format.h"

namespace trainyard {
namespace {

// The innermost command that was given.
const CLI::App* chosenCommand(const CLI::App& app, std::string* path) {
  const CLI::App* command = &app;
  *path = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    *path += " " + command->get_name();
  }
  return command;
}

std::string commandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return join(names, ", ");
}

// CLI11 says only that a command is missing, also where an unknown word stands in its place.
std::string missingCommand(const CLI::App& command) {
  const std::vector<std::string> words = command.remaining();
  const auto word = std::find_if(words.begin(), words.end(),
                                 [](const std::string& w) { return !w.starts_with('-'); });
  if (word == words.end()) return "a command is missing: " + commandsOf(command);
  return fmt::format("there is no command \"{}\"; there are {}", *word, commandsOf(command));
}

}  // namespace

int answerParseError(const CLI::App& app, const CLI::ParseError& error, std::ostream& out,
                     std::ostream& err) {
  if (error.get_exit_code() == 0) {
    app.exit(error, out, err);
    return kExitOk;
  }
  std::string path;
  const CLI::App* command = chosenCommand(app, &path);
  const bool missing = command->get_require_subcommand_min() > 0 &&
                       dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const std::string what = missing ? missingCommand(*command) : error.what();
  err << printable(fmt::format("{}: {} (see {} --help)", path, what, path)) << std::endl;
  return kExitUsage;
}

CLI::Validator wholeNumber(long low, long high) {
  const auto check = [low, high](const std::string& text) {
    const auto value = parseNumber<long>(text);
    if (value && *value >= low && *value <= high) return std::string();
    return fmt::format("expected a whole number from {} to {}, got \"{}\"", low, high, text);
  };
  return CLI::Validator(check, "WHOLE");
}

CLI::Validator assignment(const std::string& form) {
  const auto check = [form](const std::string& text) {
    if (text.find('=') != std::string::npos && text.front() != '=') return std::string();
    return fmt::format("\"{}\" is not {}", text, form);
  };
  return CLI::Validator(check, "");
}

}  // namespace trainyard
