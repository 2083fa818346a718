#include "cli/app.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "base/core/exit_code.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr char kDescription[] =
    "Trains models with parameter servers, on this machine or on Kubernetes.\n\n"
    "A job is one YAML file. `trainyard validate -f job.yaml` checks it, `trainyard plan -f "
    "job.yaml`\n"
    "shows what each parameter server would hold, `trainyard run -f job.yaml` trains it here.";

std::size_t editDistance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t k = 1; k <= b.size(); ++k) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[k - 1] ? 0 : 1);
      diagonal = row[k];
      row[k] = std::min({replaced, row[k] + 1, row[k - 1] + 1});
    }
  }
  return row.back();
}

std::vector<std::string> verbsOf(const CLI::App& app) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  return verbs;
}

int answerUnknownVerb(const std::string& word, const std::vector<std::string>& verbs,
                      const Console& console) {
  const std::string near = closestWord(word, verbs);
  console.err << fmt::format("trainyard: there is no command \"{}\"{}\n", word,
                             near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near))
              << fmt::format("Commands: {}. More: trainyard --help", fmt::join(verbs, ", "))
              << std::endl;
  return kExitUsage;
}

}  // namespace

std::string closestWord(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t least = word.size() / 3 + 2;  // as many edits make another word of it
  for (const std::string& candidate : candidates) {
    const std::size_t distance = editDistance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

int runApp(const std::vector<std::string>& arguments, const Console& console) {
  CLI::App app(kDescription, "trainyard");
  app.require_subcommand(1);
  ChosenCommand chosen;
  registerRun(app, chosen);
  registerPlan(app, chosen);
  registerValidate(app, chosen);
  registerCheckpoint(app, chosen);
  registerVersion(app, chosen);
  const std::vector<std::string> verbs = verbsOf(app);
  if (arguments.empty()) {
    console.err << app.help() << std::flush;
    return kExitUsage;
  }
  const std::string& first = arguments.front();
  if (!first.starts_with('-') && std::find(verbs.begin(), verbs.end(), first) == verbs.end()) {
    return answerUnknownVerb(first, verbs, console);
  }
  try {
    // CLI11 takes them in reverse.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error, console.out, console.err) == 0 ? kExitOk : kExitUsage;
  }
  return chosen ? chosen(console) : kExitUsage;
}

}  // namespace trainyard::cli
