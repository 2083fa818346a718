// What is fuzzed: parsers of bytes from outside, each behind a function that feeds it and holds it
// to what its header promises. The same functions run under libFuzzer (main.cc) and, over their
// seeds and simple damage to them, in an ordinary test (fuzz_seeds_test.cc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard::fuzz {

struct Target {
  const char* name;
  // Feeds the parser one input. A broken promise, like a bad access under a sanitizer, ends the
  // process. Deterministic but for nonces; keeps nothing from call to call.
  void (*run)(std::string_view input);
  // Whole and wrong inputs to begin with, which reach what mutation alone would not.
  std::vector<std::string> (*seeds)();
  // How many damaged seeds the test runs: by what one costs.
  int damaged;
};

// All parsers of the product.
const std::vector<Target>& targets();

// A parser with a bug, which the fuzzer must find: that it would see one. Its seeds are harmless.
const Target& plantedTarget();

void runJob(std::string_view input);
void runIdx(std::string_view input);
void runCsv(std::string_view input);
void runTfRecord(std::string_view input);
void runSafetensors(std::string_view input);
void runManifest(std::string_view input);
void runChunk(std::string_view input);
void runAnswer(std::string_view input);
void runGreeting(std::string_view input);
void runHandshake(std::string_view input);
void runFrame(std::string_view input);
void runMembership(std::string_view input);
void runRecord(std::string_view input);
void runReport(std::string_view input);
void runSession(std::string_view input);
void runTelling(std::string_view input);
void runPlanted(std::string_view input);

std::vector<std::string> jobSeeds();
std::vector<std::string> idxSeeds();
std::vector<std::string> csvSeeds();
std::vector<std::string> tfRecordSeeds();
std::vector<std::string> safetensorsSeeds();
std::vector<std::string> manifestSeeds();
std::vector<std::string> chunkSeeds();
std::vector<std::string> answerSeeds();
std::vector<std::string> greetingSeeds();
std::vector<std::string> handshakeSeeds();
std::vector<std::string> frameSeeds();
std::vector<std::string> membershipSeeds();
std::vector<std::string> recordSeeds();
std::vector<std::string> reportSeeds();
std::vector<std::string> sessionSeeds();
std::vector<std::string> tellingSeeds();
std::vector<std::string> plantedSeeds();

}  // namespace trainyard::fuzz
