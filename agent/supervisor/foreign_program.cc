#include "agent/supervisor/foreign_program.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "agent/supervisor/child_command.h"
#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = 8 << 20;

std::string hostOf(const v1::MemberTask& task) {
  return task.host().empty() ? task.ip() : task.host();
}

std::vector<std::string> hostsOf(const v1::Membership& membership, v1::Role role) {
  std::vector<std::string> hosts;
  for (const v1::MemberTask& task : membership.tasks()) {
    if (task.id().role() == role) hosts.push_back(fmt::format("{}:{}", hostOf(task), task.port()));
  }
  return hosts;
}

std::string tensorflowConfig(const v1::Membership& membership, const TaskIdentity& self) {
  Json config;
  const std::vector<std::string> ps = hostsOf(membership, v1::ROLE_PS);
  if (!ps.empty()) config["cluster"]["ps"] = ps;
  config["cluster"]["worker"] = hostsOf(membership, v1::ROLE_WORKER);
  config["task"] = {{"type", roleName(self.id.role())}, {"index", self.id.index()}};
  return config.dump();
}

// Places among the workers' processes: of all, and of those on the same machine.
struct Places {
  int rank = 0, size = 0;
  int local_rank = 0, local_size = 0;
  const v1::MemberTask* first = nullptr;
};

Places placesOf(const v1::Membership& membership, const TaskIdentity& self, std::uint32_t process) {
  const v1::MemberTask* own = nullptr;
  for (const v1::MemberTask& task : membership.tasks()) {
    if (sameTask(task.id(), self.id)) own = &task;
  }
  Places places;
  for (const v1::MemberTask& task : membership.tasks()) {
    if (task.id().role() != v1::ROLE_WORKER) continue;
    if (places.first == nullptr) places.first = &task;
    const bool near = own != nullptr && task.ip() == own->ip();
    const bool before = task.id().index() < self.id.index();
    places.rank += before;
    places.local_rank += near && before;
    ++places.size;
    places.local_size += near;
  }
  const auto each = static_cast<int>(self.processes);
  places.rank = places.rank * each + static_cast<int>(process);
  places.local_rank = places.local_rank * each + static_cast<int>(process);
  places.size *= each;
  places.local_size *= each;
  return places;
}

// All agents come to the same, since `taken` is the same for all: in pods, which have the ports of
// the job's spec. On one machine, where nothing is taken, the agent of each worker keeps the port
// after its own.
std::string rendezvous(const v1::MemberTask& first, const std::vector<int>& taken) {
  int port = static_cast<int>(first.port()) + 1;
  while (std::find(taken.begin(), taken.end(), port) != taken.end()) ++port;
  const std::string host = hostOf(first);
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

const std::string* find(const Variables& variables, std::string_view name) {
  for (const auto& [key, value] : variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

void set(std::vector<std::string>& environment, const std::string& name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& e) { return e.starts_with(name + "="); });
  environment.push_back(name + "=" + value);
}

}  // namespace

std::string volumeVariable(std::string name) {
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return "TRAINYARD_VOLUME_" + name;
}

StatusOr<ForeignProgram> readForeignProgram(const std::filesystem::path& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(path, kMaxBytes));
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  ForeignProgram program;
  try {
    file.at("argv").get_to(program.argv);
    for (const Json& entry : file.at("env")) {
      program.env.emplace_back(entry.at(0).get<std::string>(), entry.at(1).get<std::string>());
    }
    file.at("workingDir").get_to(program.working_dir);
    file.at("volumes").get_to(program.volumes);
  } catch (const Json::exception& error) {
    return invalidInput(path.native(), error.what());
  }
  if (program.argv.empty()) return invalidInput(path.native(), "argv: is empty");
  return program;
}

ForeignProgram foreignProgram(std::vector<std::string> argv,
                              std::map<std::string, std::string> volumes,
                              const std::vector<std::string>& environment) {
  ForeignProgram program;
  program.argv = std::move(argv);
  program.volumes = std::move(volumes);
  for (const std::string& entry : environment) {
    const auto [name, value] = splitFirst(entry, '=');
    if (name.starts_with("LD_")) program.env.emplace_back(name, value);
  }
  return program;
}

Variables foreignVariables(const v1::Membership& membership, const TaskIdentity& self,
                           const std::string& membership_file,
                           const std::map<std::string, std::string>& volumes,
                           const ForeignPlace& place) {
  const Places places = placesOf(membership, self, place.process);
  Variables variables = {
      {"TRAINYARD_JOB", self.job.name},
      {"TRAINYARD_NAMESPACE", self.job.ns},
      {"TRAINYARD_ROLE", roleName(self.id.role())},
      {"TRAINYARD_INDEX", std::to_string(self.id.index())},
      {"TRAINYARD_REVISION", std::to_string(membership.revision())},
      {"TRAINYARD_MEMBERSHIP_FILE", membership_file},
      {"PS_HOSTS", join(hostsOf(membership, v1::ROLE_PS), ",")},
      {"WORKER_HOSTS", join(hostsOf(membership, v1::ROLE_WORKER), ",")},
      {"TF_CONFIG", tensorflowConfig(membership, self)},
      {"WORLD_SIZE", std::to_string(places.size)},
  };
  if (places.first != nullptr) {
    variables.emplace_back("MASTER_ADDR", hostOf(*places.first));
    variables.emplace_back("MASTER_PORT", std::to_string(places.first->port()));
    variables.emplace_back("TRAINYARD_RENDEZVOUS", rendezvous(*places.first, place.taken));
  }
  if (self.id.role() == v1::ROLE_WORKER) {
    variables.emplace_back("RANK", std::to_string(places.rank));
    variables.emplace_back("LOCAL_RANK", std::to_string(places.local_rank));
    variables.emplace_back("LOCAL_WORLD_SIZE", std::to_string(places.local_size));
  }
  if (!place.report.empty()) variables.emplace_back("TRAINYARD_REPORT", place.report);
  for (const auto& [name, folder] : volumes) variables.emplace_back(volumeVariable(name), folder);
  return variables;
}

std::string fingerprint(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) {
    if (name != "TRAINYARD_REVISION") text += name + "=" + value + "\n";
  }
  return text;
}

std::string expandVariables(const std::string& text, const Variables& variables) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool escaped = text.compare(at, 3, "$$(") == 0;
    const bool opens = escaped || text.compare(at, 2, "$(") == 0;
    const std::size_t name_at = at + (escaped ? 3 : 2);
    const std::size_t close = opens ? text.find(')', name_at) : std::string::npos;
    const std::string* value = close == std::string::npos
                                   ? nullptr
                                   : find(variables, text.substr(name_at, close - name_at));
    if (value == nullptr) {
      out += text[at++];
      continue;
    }
    out += escaped ? text.substr(at + 1, close - at) : *value;
    at = close + 1;
  }
  return out;
}

ForeignStart foreignStart(const ForeignProgram& program, const Variables& variables, v1::Role role,
                          const std::vector<std::string>& environment, const std::string& secret) {
  ForeignStart start;
  for (const std::string& word : program.argv) {
    start.argv.push_back(expandVariables(word, variables));
  }
  start.env = childEnvironment(environment);
  const bool chosen = std::any_of(start.env.begin(), start.env.end(), [](const std::string& entry) {
    return entry.starts_with("CUDA_VISIBLE_DEVICES=");
  });
  const std::string* local_rank = find(variables, "LOCAL_RANK");
  if (role == v1::ROLE_PS) {
    set(start.env, "CUDA_VISIBLE_DEVICES", "");
  } else if (program.gpu_by_rank && !chosen && local_rank != nullptr) {
    set(start.env, "CUDA_VISIBLE_DEVICES", *local_rank);
  }
  for (const auto& [name, value] : program.env) set(start.env, name, value);
  for (const auto& [name, value] : variables) set(start.env, name, value);
  if (!secret.empty()) set(start.env, "TRAINYARD_SECRET", secret);
  return start;
}

}  // namespace trainyard::agent
