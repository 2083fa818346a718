#include "cli/doctor/local_findings.h"

#include <filesystem>
#include <string>

#include "base/core/strings.h"
#include "base/core/units.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr std::int64_t kLittleMemory = 512 * kMiB;
// Docker gives 64 MB; a batch of pictures for each of some loaders is more.
constexpr std::int64_t kLittleShm = 256 * kMiB;
constexpr std::int64_t kLittleDisk = kGiB;     // some checkpoints of a small model
constexpr std::int64_t kNoDisk = 50 * kMiB;    // not even one
constexpr std::uint64_t kFewOpenFiles = 1024;  // what most systems give; enough for some 100 tasks
constexpr char kBuildAll[] =
    "`make build`, or the Debian package, puts all programs into one folder; keep those of one "
    "build together, since trainyard looks for the others beside itself";

std::string_view textOf(const Status& status) {
  return fromAbsl(status.message());
}

std::string nameOf(const ProgramFacts& program) {
  return std::filesystem::path(program.path).filename().string();
}

// "trainyard-agent 0.1.0 84fdbd0": name, release, commit.
void compareVersions(const LocalFacts& facts, const ProgramFacts& program, FindingGroup& group) {
  const std::vector<std::string_view> words = split(*program.said, ' ');
  const std::string name = nameOf(program);
  if (words.size() != 3 || !words[0].starts_with("trainyard-")) {
    group.problem(fmt::format("{} is of another release: it does not say of which", name),
                  kBuildAll);
  } else if (words[1] != facts.release) {
    group.problem(fmt::format("{} is {}, trainyard is {}", name, words[1], facts.release),
                  kBuildAll);
  } else if (words[2] != facts.commit) {
    group.warning(fmt::format("{} is of another build: commit {}, trainyard's is {}", name,
                              words[2], facts.commit),
                  kBuildAll);
  } else {
    group.ok(fmt::format("{} {}", name, words[1]));
  }
}

void checkProgram(const LocalFacts& facts, const ProgramFacts& program, FindingGroup& group) {
  const std::string name = nameOf(program);
  const std::string folder = std::filesystem::path(program.path).parent_path().string();
  if (absl::IsNotFound(program.executable)) {
    group.problem(fmt::format("{} is not in {}", name, folder), kBuildAll);
  } else if (!program.executable.ok()) {
    group.problem(fmt::format("{} cannot be started: {}", name, textOf(program.executable)),
                  fmt::format("chmod a+rx {}", program.path));
  } else if (!program.said.ok()) {
    group.problem(fmt::format("{} does not work: {}", name, textOf(program.said.status())),
                  fmt::format("`ldd {}` names libraries that are missing, and deploy/packages.txt "
                              "Debian's packages; else build it anew: make build",
                              program.path));
  } else {
    compareVersions(facts, program, group);
  }
}

void findPrograms(const LocalFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("Programs", findings);
  group.ok(fmt::format("trainyard {} (commit {})", facts.release, facts.commit));
  checkProgram(facts, facts.agent, group);
  checkProgram(facts, facts.runtime, group);
  if (!absl::IsNotFound(facts.runtime_torch.executable)) {
    checkProgram(facts, facts.runtime_torch, group);
  }
}

void findGpu(const LocalFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("GPU", findings);
  const bool torch = !absl::IsNotFound(facts.runtime_torch.executable);
  if (facts.gpu && torch) {
    group.ok("an NVIDIA GPU, and trainyard-runtime-torch to compute on it");
  } else if (facts.gpu) {
    group.warning("an NVIDIA GPU, but no trainyard-runtime-torch: models compute on the processor",
                  "build it with a LibTorch for CUDA: make torch TRAINYARD_TORCH=DIR");
  } else if (torch) {
    group.note("no NVIDIA GPU; trainyard-runtime-torch computes TorchScript modules");
  } else {
    group.note("no NVIDIA GPU, and no trainyard-runtime-torch, which TorchScript modules need too",
               "for such modules: make torch; other jobs do without");
  }
}

void checkCpus(const LocalFacts& facts, FindingGroup& group) {
  const std::string text = fmt::format("{:g} core{} {}", facts.cpus.cores,
                                       facts.cpus.cores == 1 ? "" : "s", facts.cpus.source);
  if (facts.cpus.cores >= 1) return group.ok(text);
  group.warning(text + ": less than one, for all tasks of a run together",
                "give the container more (docker run --cpus, resources.limits.cpu of a pod)");
}

void checkMemory(const LocalFacts& facts, FindingGroup& group) {
  if (!facts.memory.ok())
    return group.unknown("memory", facts.memory.status(), "is /proc mounted?");
  const std::string text = fmt::format(
      "{} of {} memory available ({})", formatBytes(static_cast<double>(facts.memory->bytes)),
      formatBytes(static_cast<double>(facts.memory->limit)), facts.memory->source);
  if (facts.memory->bytes >= kLittleMemory) return group.ok(text);
  group.warning(text + ": that is little for a run",
                "end other programs, or give the container more; `trainyard plan -f job.yaml` says "
                "what a job takes");
}

void checkShm(const LocalFacts& facts, FindingGroup& group) {
  const FolderFacts& shm = facts.shm;
  constexpr char kAdvice[] =
      "give it more (docker run --shm-size=2g, mount -o remount,size=2g /dev/shm) for programs of "
      "your own that share arrays, as PyTorch's DataLoader does with its workers; trainyard's own "
      "tasks need none";
  if (shm.here != shm.path) return group.warning(shm.path + " is not there", kAdvice);
  if (!shm.writable.ok()) {
    return group.warning(fmt::format("nothing can be written: {}", textOf(shm.writable)), kAdvice);
  }
  const std::string text =
      fmt::format("{}: {} free", shm.path, formatBytes(static_cast<double>(shm.free_bytes)));
  if (shm.free_bytes >= kLittleShm) return group.ok(text);
  group.warning(text, kAdvice);
}

void findMachine(const LocalFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("Machine", findings);
  checkCpus(facts, group);
  checkMemory(facts, group);
  if (facts.shared_memory.ok()) {
    group.ok("tasks can share memory");
  } else {
    group.warning(fmt::format("tasks cannot share memory: {}", textOf(facts.shared_memory)),
                  "let the container have memfd_create and /proc of its own processes (a seccomp "
                  "profile or hidepid may forbid them): else gradients go over loopback, and jobs "
                  "of model: program do not start");
  }
  checkShm(facts, group);
  if (facts.open_files >= kFewOpenFiles) {
    group.ok(fmt::format("{} open files for each process", facts.open_files));
  } else {
    group.warning(
        fmt::format("only {} open files for each process: too few for many tasks",
                    facts.open_files),
        "raise it in this shell: ulimit -n 65536 (as root, or up to what ulimit -Hn says)");
  }
  if (facts.loopback.ok()) {
    group.ok("tasks can reach each other at 127.0.0.1");
  } else {
    group.problem(fmt::format("tasks cannot reach each other: {}", textOf(facts.loopback)),
                  "bring the loopback interface up: ip link set lo up");
  }
}

void findRuns(const LocalFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("Runs", findings);
  const FolderFacts& runs = facts.runs;
  if (!runs.writable.ok()) {
    return group.problem(
        fmt::format("no run can be made in {}: {}", runs.path, textOf(runs.writable)),
        "go to a folder in which you may write, or name one: TRAINYARD_RUNS=DIR, or --dir DIR of "
        "run");
  }
  if (!runs.free_known) {
    return group.unknown(runs.path, absl::UnknownError("its free space cannot be read"),
                         "df " + runs.here);
  }
  const std::string free = formatBytes(static_cast<double>(runs.free_bytes));
  const std::string little = fmt::format("only {} free for runs in {}", free, runs.path);
  constexpr char kAdvice[] =
      "free some, keep fewer checkpoints (training.checkpoint.keep), or name another folder: "
      "TRAINYARD_RUNS=DIR";
  if (runs.free_bytes < kNoDisk) return group.problem(little, kAdvice);
  if (runs.free_bytes < kLittleDisk) return group.warning(little, kAdvice);
  group.ok(fmt::format("runs can be made in {}: {} free", runs.path, free));
}

void findPython(const LocalFacts& facts, std::vector<Finding>& findings) {
  FindingGroup group("Python programs of your own", findings);
  const PythonFacts& python = facts.python;
  if (python.version.empty()) {
    return group.note("no python3 on the PATH",
                      "for programs in Python: apt-get install python3; other jobs do without");
  }
  const auto part = [](const char* name, const std::string& version) {
    return version.empty() ? fmt::format("no {}", name) : fmt::format("{} {}", name, version);
  };
  group.note(fmt::format("python3 {} with {}, {}", python.version, part("torch", python.torch),
                         part("trainyard-client", python.client)),
             python.client.empty()
                 ? "for `import trainyard`: make wheel, and in a virtual environment pip install "
                   "build/wheel/*.whl (docs/python.md)"
                 : "");
}

}  // namespace

std::vector<Finding> localFindings(const LocalFacts& facts) {
  std::vector<Finding> findings;
  findPrograms(facts, findings);
  findMachine(facts, findings);
  findRuns(facts, findings);
  findGpu(facts, findings);
  findPython(facts, findings);
  return findings;
}

}  // namespace trainyard::cli
