// Four examples in a TFRecord file, as TensorFlow has written them (write_examples.py beside this).
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

namespace trainyard::runtime {

// The file's bytes; empty: they cannot be read.
inline std::string tensorFlowExamples() {
  const char* const root = std::getenv("TRAINYARD_SOURCE");
  std::ifstream lines(std::string(root) + "/tests/runtime/data/tensorflow_examples.txt");
  std::string bytes;
  for (std::string line; lines >> line;) {
    for (std::size_t i = 0; i + 1 < line.size(); i += 2)
      bytes += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace trainyard::runtime
