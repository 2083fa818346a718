#include "cli/doctor/local_facts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/core/strings.h"
#include "base/process/open_files.h"
#include "base/process/run_to_end.h"
#include "base/process/shared_memory.h"
#include "base/process/unique_fd.h"
#include "base/programs/runtime_program.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kProgramLimit{10};  // against a program that hangs
constexpr std::chrono::seconds kLoopbackLimit{2};  // against a firewall
constexpr std::size_t kSharedBytes = 4096;

// Loads no torch: that takes seconds.
constexpr char kPythonScript[] = R"(import sys
try:
    from importlib import metadata
except ImportError:
    metadata = None
def version(name):
    try:
        return metadata.version(name)
    except Exception:
        return "-"
print("versions", sys.version.split()[0], version("torch"), version("trainyard-client"))
)";

// What the program prints, trimmed; an error where it does not end with 0 in time.
StatusOr<std::string> outputOf(std::vector<std::string> command) {
  std::string text;
  SpawnOptions spawn;
  spawn.argv = std::move(command);
  spawn.die_with_spawning_thread = true;
  spawn.on_line = [&text](std::string_view line) { text.append(line).append("\n"); };
  TY_ASSIGN_OR_RETURN(const ExitState exit, runToEnd(spawn, kProgramLimit));
  const std::string said(trim(text));
  if (exit == ExitState{}) return said;
  return absl::FailedPreconditionError(said.empty() ? toString(exit) : said);
}

ProgramFacts programFacts(const std::string& path) {
  ProgramFacts facts;
  facts.path = path;
  if (::access(path.c_str(), X_OK) != 0) {
    facts.executable = errnoStatus(errno, path);
    return facts;
  }
  facts.said = outputOf({path, "--version"});
  return facts;
}

fs::path nearestThere(const fs::path& path) {
  std::error_code ignored;
  fs::path here = path;
  while (here.has_relative_path() && !fs::exists(here, ignored)) here = here.parent_path();
  return here;
}

FolderFacts folderFacts(const std::string& path) {
  FolderFacts facts;
  std::error_code ignored;
  facts.path = fs::absolute(path, ignored).lexically_normal().string();
  facts.here = nearestThere(facts.path).string();
  if (!fs::is_directory(facts.here, ignored)) {
    facts.writable = errnoStatus(ENOTDIR, facts.here);
  } else if (::access(facts.here.c_str(), W_OK | X_OK) != 0) {
    facts.writable = errnoStatus(errno, facts.here);
  }
  struct statvfs space {};
  facts.free_known = ::statvfs(facts.here.c_str(), &space) == 0;
  facts.free_bytes = static_cast<std::int64_t>(space.f_bavail * space.f_frsize);
  return facts;
}

Status trySharedMemory() {
  const auto memory = SharedMemory::create("trainyard doctor", kSharedBytes);
  TY_RETURN_IF_ERROR(memory.status());
  // By the way that another task takes.
  return SharedMemory::open(::getpid(), memory->fd(), kSharedBytes).status();
}

// A port that is listened at, and a connection to it: an interface that is down gives the first.
Status tryLoopback() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{kLoopbackLimit.count(), 0};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  const bool reached =
      listener.valid() && caller.valid() && ::bind(listener.get(), any, size) == 0 &&
      ::listen(listener.get(), 1) == 0 && ::getsockname(listener.get(), any, &size) == 0 &&
      ::setsockopt(caller.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0 &&
      ::connect(caller.get(), any, size) == 0;
  return reached ? absl::OkStatus() : errnoStatus(errno, "127.0.0.1");
}

PythonFacts pythonFacts() {
  PythonFacts facts;
  const auto said = outputOf({"python3", "-c", kPythonScript});
  if (!said.ok()) return facts;
  const std::vector<std::string_view> words = split(*said, ' ');
  if (words.size() != 4 || words[0] != "versions") return facts;
  const auto known = [](std::string_view word) {
    return word == "-" ? std::string() : std::string(word);
  };
  facts.version = words[1];
  facts.torch = known(words[2]);
  facts.client = known(words[3]);
  return facts;
}

}  // namespace

LocalFacts collectLocal(const LocalPlace& place) {
  LocalFacts facts;
  facts.release = place.release;
  facts.commit = place.commit;
  const std::string runtime = place.program_dir + "/trainyard-runtime";
  facts.agent = programFacts(place.program_dir + "/trainyard-agent");
  facts.runtime = programFacts(runtime);
  facts.runtime_torch = programFacts(torchProgram(runtime));
  facts.cpus = availableCpus(usableCores());
  facts.memory = availableMemory();
  facts.shared_memory = trySharedMemory();
  facts.shm = folderFacts(place.shm_dir);
  facts.open_files = openFilesLimit();
  facts.loopback = tryLoopback();
  facts.runs = folderFacts(place.runs_dir);
  facts.gpu = hasGpu(place.visible_gpus ? place.visible_gpus->c_str() : nullptr);
  facts.python = pythonFacts();
  return facts;
}

}  // namespace trainyard::cli
