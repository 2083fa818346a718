// `trainyard completion bash|zsh|fish`: a script that completes verbs, flags and names of jobs.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "cli/command.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

struct Flag {
  std::vector<std::string> names;  // "--follow", "-f"
  std::string help;
};

struct KnownVerb {
  std::string name;
  std::string help;
  std::vector<Flag> flags = {};
  bool takes_job = false;
  std::vector<std::string> words = {};  // what may follow: further verbs, or a fixed set
};

// The first line, up to its first stop: descriptions are for people who know the verb.
std::string firstLine(const std::string& text) {
  return text.substr(0, text.find_first_of("\n"));
}

Flag flagOf(const CLI::Option& option) {
  Flag flag;
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  flag.help = firstLine(option.get_description());
  return flag;
}

void addFlags(const CLI::App& app, KnownVerb* verb) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      const std::string name = option->get_name(true);
      verb->takes_job = verb->takes_job || name == "JOB" || name == "run";
      continue;
    }
    verb->flags.push_back(flagOf(*option));
  }
}

std::vector<KnownVerb> verbsOf(const CLI::App& app) {
  std::vector<KnownVerb> verbs;
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (sub->get_group().empty()) continue;  // hidden
    KnownVerb verb{.name = sub->get_name(), .help = firstLine(sub->get_description())};
    addFlags(*sub, &verb);
    for (const CLI::App* inner : sub->get_subcommands({})) {
      verb.words.push_back(inner->get_name());
      addFlags(*inner, &verb);
    }
    if (verb.name == "completion") verb.words = {"bash", "zsh", "fish"};
    verbs.push_back(std::move(verb));
  }
  return verbs;
}

std::string namesOf(const std::vector<KnownVerb>& verbs) {
  std::string names;
  for (const KnownVerb& verb : verbs) names += (names.empty() ? "" : " ") + verb.name;
  return names;
}

std::string flagNames(const KnownVerb& verb) {
  std::string names;
  for (const Flag& flag : verb.flags) {
    for (const std::string& name : flag.names) names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// Within single quotes of all three shells.
std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4)
    text.replace(at, 1, "'\\''");
  return text;
}

std::string bashScript(const std::vector<KnownVerb>& verbs) {
  std::string text =
      "# source <(trainyard completion bash)\n"
      "_trainyard() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} flags='' words='' jobs=''\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '" +
      namesOf(verbs) +
      "' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const KnownVerb& verb : verbs) {
    text += fmt::format("    {}) flags='{}' words='{}' jobs='{}' ;;\n", verb.name, flagNames(verb),
                        joined(verb.words), verb.takes_job ? "yes" : "");
  }
  text +=
      "  esac\n"
      "  if [[ $current == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  [[ -n $jobs ]] && words+=\" $(trainyard get -o name 2>/dev/null)\"\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}\n"
      "complete -o default -F _trainyard trainyard\n";
  return text;
}

std::string zshScript(const std::vector<KnownVerb>& verbs) {
  std::string text =
      "#compdef trainyard\n"
      "# source <(trainyard completion zsh)\n"
      "_trainyard() {\n"
      "  local -a verbs flags words_\n"
      "  local jobs=''\n"
      "  verbs=(\n";
  const auto entry = [](const std::string& name, const std::string& help) {
    std::string escaped;
    for (const char c : help) escaped += c == ':' ? "\\:" : std::string(1, c);
    return fmt::format("'{}:{}'\n", quoted(name), quoted(escaped));
  };
  for (const KnownVerb& verb : verbs) text += "    " + entry(verb.name, verb.help);
  text +=
      "  )\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe command verbs\n"
      "    return\n"
      "  fi\n"
      "  case $words[2] in\n";
  for (const KnownVerb& verb : verbs) {
    text += fmt::format("    {})\n      words_=({}) jobs='{}'\n      flags=(\n", verb.name,
                        joined(verb.words), verb.takes_job ? "yes" : "");
    for (const Flag& flag : verb.flags) {
      for (const std::string& name : flag.names) text += "        " + entry(name, flag.help);
    }
    text += "      ) ;;\n";
  }
  text +=
      "  esac\n"
      "  if [[ $PREFIX == -* ]]; then\n"
      "    _describe -o flag flags\n"
      "    return\n"
      "  fi\n"
      "  [[ -n $jobs ]] && words_+=(${(f)\"$(trainyard get -o name 2>/dev/null)\"})\n"
      "  compadd -a words_\n"
      "  _files\n"
      "}\n"
      "if [[ $funcstack[1] == _trainyard ]]; then _trainyard; else compdef _trainyard trainyard; "
      "fi\n";
  return text;
}

std::string fishScript(const std::vector<KnownVerb>& verbs) {
  std::string text = "# trainyard completion fish | source\n";
  for (const KnownVerb& verb : verbs) {
    text += fmt::format("complete -c trainyard -n __fish_use_subcommand -a {} -d '{}'\n", verb.name,
                        quoted(verb.help));
    const std::string here =
        fmt::format("complete -c trainyard -n '__fish_seen_subcommand_from {}'", verb.name);
    if (!verb.words.empty()) text += fmt::format("{} -a '{}'\n", here, joined(verb.words));
    if (verb.takes_job) text += fmt::format("{} -a '(trainyard get -o name 2>/dev/null)'\n", here);
    for (const Flag& flag : verb.flags) {
      text += here;
      for (const std::string& name : flag.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += fmt::format(" -d '{}'\n", quoted(flag.help));
    }
  }
  return text;
}

constexpr char kCompletionFooter[] =
    "Examples:\n"
    "  source <(trainyard completion bash)          # in ~/.bashrc\n"
    "  source <(trainyard completion zsh)           # in ~/.zshrc, after compinit\n"
    "  trainyard completion fish | source           # in ~/.config/fish/config.fish";

}  // namespace

void registerCompletion(CLI::App& app, ChosenCommand& chosen) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb =
      app.add_subcommand("completion", "Print a script that completes trainyard in your shell");
  verb->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer(kCompletionFooter);
  verb->callback([&app, shell, &chosen] {
    chosen = [&app, shell](const Console& console) {
      const std::vector<KnownVerb> verbs = verbsOf(app);
      console.out << (*shell == "bash"  ? bashScript(verbs)
                      : *shell == "zsh" ? zshScript(verbs)
                                        : fishScript(verbs));
      console.out.flush();
      return kExitOk;
    };
  });
}

}  // namespace trainyard::cli
