// How the files of a job are read.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/data/sample_stream.h"

namespace trainyard::runtime::internal {

struct Reading {
  std::int64_t samples_max = kMaxSamples;  // in all files
  std::string scratch = {};  // folder in which samples are kept; empty: they are kept in memory
  std::string cache = {};    // folder for copies of objects; empty: none are kept
};

}  // namespace trainyard::runtime::internal
