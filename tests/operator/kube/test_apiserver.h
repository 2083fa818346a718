// The apiserver that a run of tests shares (tests/cluster/CMakeLists.txt).
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace trainyard::control {

inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Its kubeconfig; "" where there is none.
inline std::string kubeconfigPath() {
  for (const char* name : {"TRAINYARD_CLUSTER", "TRAINYARD_TEST_APISERVER"}) {
    const std::string path = variable(name) + "/kubeconfig";
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

// Ends a test that finds none: skipped, or failed where one is required.
inline void missApiserver() {
  if (variable("TRAINYARD_REQUIRE").find("cluster") != std::string::npos) {
    FAIL() << "no cluster, and TRAINYARD_REQUIRE asks for one";
  }
  GTEST_SKIP() << "no cluster: TRAINYARD_CLUSTER names none, and none could be started";
}

}  // namespace trainyard::control
