#include "cli/app.h"

#include <algorithm>
#include <ostream>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/printable.h"
#include "base/flags/usage.h"
#include "cli/closest_word.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr char kDescription[] =
    "Trains models with parameter servers, on this machine or on Kubernetes.\n\n"
    "A job is one YAML file. `trainyard validate -f job.yaml` checks it, `trainyard plan -f "
    "job.yaml`\n"
    "shows what each parameter server would hold, `trainyard run -f job.yaml` trains it here;\n"
    "get, describe, top, logs, scale, suspend, resume and delete look after the jobs below "
    "./runs.\n\n"
    "`trainyard submit -f job.yaml` trains it on the Kubernetes of the kubeconfig; the same verbs "
    "look\n"
    "after the jobs there, given --cluster, -n NAMESPACE or --context NAME.\n\n"
    "`trainyard doctor` says what is missing here, or with these flags in the cluster.";

std::vector<std::string> verbsOf(const CLI::App& app, bool hidden) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_group().empty() == hidden) verbs.push_back(verb->get_name());
  }
  return verbs;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

int answerUnknownVerb(const std::string& word, const std::vector<std::string>& verbs,
                      const Console& console) {
  const std::string near = closestWord(word, verbs);
  const std::string hint = near.empty() ? fmt::format("; there are {}", fmt::join(verbs, ", "))
                                        : fmt::format("; did you mean \"{}\"?", near);
  console.err << printable(fmt::format("trainyard: there is no command \"{}\"{} (see trainyard "
                                       "--help)",
                                       word, hint))
              << std::endl;
  return kExitUsage;
}

}  // namespace

int runApp(const std::vector<std::string>& arguments, const Console& console) {
  CLI::App app(kDescription, "trainyard");
  app.require_subcommand(1);
  ChosenCommand chosen;
  registerRun(app, chosen);
  registerGet(app, chosen);
  registerLogs(app, chosen);
  registerControl(app, chosen);
  registerSubmit(app, chosen);
  registerReport(app, chosen);
  registerPlan(app, chosen);
  registerValidate(app, chosen);
  registerCheckpoint(app, chosen);
  registerTop(app, chosen);
  registerCompletion(app, chosen);
  registerDoctor(app, chosen);
  registerVersion(app, chosen);
  const std::vector<std::string> verbs = verbsOf(app, false);
  if (arguments.empty()) {
    console.err << app.help() << std::flush;
    return kExitUsage;
  }
  const std::string& first = arguments.front();
  if (!first.starts_with('-') && !contains(verbs, first) && !contains(verbsOf(app, true), first)) {
    return answerUnknownVerb(first, verbs, console);
  }
  std::vector<std::string> words = arguments;
  const auto command = std::find(words.begin(), words.end(), "--");
  if (first == "run" || (first == "submit" && command != words.end())) {
    // As other launchers write it; to CLI11 it would be the flag -n with the value "p", which of a
    // job's file it is.
    std::replace(words.begin(), command, std::string("-np"), std::string("--np"));
  }
  try {
    // CLI11 takes them in reverse.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    return answerParseError(app, error, console.out, console.err);
  }
  return chosen ? chosen(console) : kExitUsage;
}

}  // namespace trainyard::cli
