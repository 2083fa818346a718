// What jobs on this machine need of it, as it is now.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/core/status.h"
#include "base/process/cpus.h"
#include "base/process/memory.h"

namespace trainyard::cli {

// One of the programs that belong beside the command line.
struct ProgramFacts {
  std::string path;
  Status executable;  // NOT_FOUND: it is not there
  // What it says for --version; an error has its words, or how it ended.
  StatusOr<std::string> said = absl::UnknownError("not asked");
};

struct FolderFacts {
  std::string path;  // absolute
  std::string here;  // that, or the nearest folder above it that exists
  Status writable;
  std::int64_t free_bytes = 0;
  bool free_known = false;
};

struct PythonFacts {
  std::string version;  // "3.11.2"; "": there is none
  std::string torch;    // "": it has none
  std::string client;   // of the Python package trainyard
};

struct LocalFacts {
  std::string release;  // "0.1.0", of the command line
  std::string commit;
  ProgramFacts agent;
  ProgramFacts runtime;
  ProgramFacts runtime_torch;
  AvailableCpus cpus;
  StatusOr<AvailableMemory> memory = absl::UnknownError("not asked");
  Status shared_memory;  // whether tasks can share some
  FolderFacts shm;       // /dev/shm, which programs of users' own share by
  std::uint64_t open_files = 0;
  Status loopback;  // whether a port of 127.0.0.1 can be listened at and reached
  FolderFacts runs;
  bool gpu = false;  // one that CUDA would see
  PythonFacts python;
};

struct LocalPlace {
  std::string program_dir;
  std::string runs_dir;
  std::string release;
  std::string commit;
  std::optional<std::string> visible_gpus;  // CUDA_VISIBLE_DEVICES
  std::string shm_dir = "/dev/shm";
};

// Starts each program once, for its version, and waits some seconds at most for each. Leaves
// nothing behind.
LocalFacts collectLocal(const LocalPlace& place);

}  // namespace trainyard::cli
