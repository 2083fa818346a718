#include "tests/fuzz/target.h"

namespace trainyard::fuzz {

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"job", runJob, jobSeeds, 4000},
      {"idx", runIdx, idxSeeds, 4000},
      {"csv", runCsv, csvSeeds, 4000},
      {"tfrecord", runTfRecord, tfRecordSeeds, 4000},
      {"safetensors", runSafetensors, safetensorsSeeds, 3000},
      {"manifest", runManifest, manifestSeeds, 4000},
      {"chunk", runChunk, chunkSeeds, 4000},
      {"answer", runAnswer, answerSeeds, 4000},
      {"greeting", runGreeting, greetingSeeds, 2000},
      {"handshake", runHandshake, handshakeSeeds, 2000},
      {"frame", runFrame, frameSeeds, 4000},
      {"membership", runMembership, membershipSeeds, 4000},
      {"record", runRecord, recordSeeds, 3000},
      {"report", runReport, reportSeeds, 3000},
      {"session", runSession, sessionSeeds, 3000},
      {"telling", runTelling, tellingSeeds, 3000},
  };
  return all;
}

const Target& plantedTarget() {
  static const Target planted = {"planted", runPlanted, plantedSeeds, 0};
  return planted;
}

}  // namespace trainyard::fuzz
