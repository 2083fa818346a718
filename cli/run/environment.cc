#include "cli/run/environment.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <thread>

#include "base/core/strings.h"
#include "base/core/units.h"
#include "base/process/files.h"
#include "cli/version.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxEnvironmentBytes = 4 << 20;

std::string cpuModel() {
  const auto info = readFile("/proc/cpuinfo", kMaxEnvironmentBytes);
  if (!info.ok()) return "";
  for (const std::string_view line : split(*info, '\n')) {
    const auto [name, value] = splitFirst(line, ':');
    if (trim(name) == "model name") return std::string(trim(value));
  }
  return "";
}

using Facts = std::vector<std::pair<std::string, std::string>>;

std::string describeData(const v1::DataSpec& data) {
  if (data.format() == "idx") return data.images();
  if (data.files().empty()) return data.format();
  const int others = data.files_size() - 1;
  return data.files(0) + (others == 0 ? "" : fmt::format(" and {} more", others));
}

// A ring has no parameter servers.
std::string factOfTasks(const v1::JobSpec& spec) {
  const int processes = spec.worker().processes_per_pod();
  return fmt::format(
      "{}{} workers{}",
      spec.has_ps() ? fmt::format("{} parameter servers, ", spec.ps().replicas()) : "",
      spec.worker().replicas(), processes > 1 ? fmt::format(" of {} processes", processes) : "");
}

std::string describeTables(const v1::Training& training) {
  std::vector<std::string> texts;
  for (const v1::TableSpec& table : training.tables())
    texts.push_back(fmt::format("{} (dim {})", table.name(), table.dim()));
  return join(texts, ", ");
}

void addTraining(const v1::TrainingJob& job, Facts* facts) {
  const v1::Training& training = job.spec().training();
  facts->emplace_back("model", training.model().name());
  if (training.has_data()) facts->emplace_back("data", describeData(training.data()));
  if (!training.tables().empty()) facts->emplace_back("tables", describeTables(training));
  const v1::OptimizerSpec& optimizer = training.optimizer();
  std::string text =
      fmt::format("{}, learning rate {:g}", optimizer.name(), optimizer.learning_rate());
  if (optimizer.has_decay()) {
    text +=
        fmt::format(", x {:g} every {} steps{}", optimizer.decay().rate(),
                    optimizer.decay().every(), optimizer.decay().staircase() ? " (staircase)" : "");
  }
  facts->emplace_back("optimizer", text);
  facts->emplace_back("batch", training.has_global_batch_size()
                                   ? fmt::format("{} in all", training.global_batch_size())
                                   : fmt::format("{} per worker", training.batch_size()));
  if (training.has_passes()) facts->emplace_back("passes", std::to_string(training.passes()));
  if (!training.init_from().empty()) facts->emplace_back("weights from", training.init_from());
  facts->emplace_back("update", training.update().mode());
  facts->emplace_back("seed", std::to_string(training.seed()));
}

std::string scalarText(const Json& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

}  // namespace

Json describeMachine() {
  Json json;
  json["trainyard"] = versionText();
  json["cpu"] = cpuModel();
  json["cores"] = std::thread::hardware_concurrency();
  json["memoryBytes"] =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  utsname name{};
  if (::uname(&name) == 0) json["kernel"] = fmt::format("{} {}", name.sysname, name.release);
  return json;
}

Json computesWith(const std::filesystem::path& dir) {
  for (const char* place : {"tasks/worker-0", "tasks/worker-0/process-0"}) {
    const auto text = readFile(dir / place / "compute.json", kMaxEnvironmentBytes);
    Json json = Json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) return json;
  }
  return nullptr;
}

Facts reportFacts(const v1::TrainingJob& job, const std::vector<std::string>& programs,
                  const Json& environment) {
  Facts facts;
  if (job.spec().has_training()) addTraining(job, &facts);
  for (const std::string& program : programs) facts.emplace_back("program", program);
  facts.emplace_back("tasks", factOfTasks(job.spec()));
  for (const auto& [name, value] : environment.items()) {
    if (name == "memoryBytes") {
      facts.emplace_back("memory", formatBytes(value.get<double>()));
    } else if (value.is_object()) {
      for (const auto& [inner, part] : value.items()) {
        facts.emplace_back(name + " " + inner, scalarText(part));
      }
    } else if (!value.is_null()) {
      facts.emplace_back(name, scalarText(value));
    }
  }
  return facts;
}

}  // namespace trainyard::cli
