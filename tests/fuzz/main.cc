// libFuzzer over one target (fuzz.py): TRAINYARD_FUZZ_TARGET names it. With TRAINYARD_FUZZ_SEEDS, a
// folder that is there, it writes the target's seeds into it instead.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/core/check.h"
#include "base/core/log.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

const Target& chosen() {
  const char* const name = std::getenv("TRAINYARD_FUZZ_TARGET");
  TY_CHECK(name != nullptr, "fuzz.py says which target");
  for (const Target& target : targets()) {
    if (std::string_view(target.name) == name) return target;
  }
  TY_CHECK(std::string_view(plantedTarget().name) == name, "a target has this name");
  return plantedTarget();
}

void writeSeeds(const Target& target, const std::string& folder) {
  int number = 0;
  for (const std::string& seed : target.seeds()) {
    const std::string path = fmt::format("{}/seed-{:04}", folder, number++);
    TY_CHECK(replaceFile(path, seed).ok(), "the folder takes a seed");
  }
}

}  // namespace
}  // namespace trainyard::fuzz

// Both are libFuzzer's names.
extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  // A line for each input would be most of the time.
  google::protobuf::SetLogHandler(nullptr);
  trainyard::configureLog({.level = trainyard::LogLevel::kError});
  if (const char* const folder = std::getenv("TRAINYARD_FUZZ_SEEDS")) {
    trainyard::fuzz::writeSeeds(trainyard::fuzz::chosen(), folder);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const trainyard::fuzz::Target& target = trainyard::fuzz::chosen();
  target.run({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
