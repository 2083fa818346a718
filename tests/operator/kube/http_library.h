// Tests of HTTP run once for each library: tests/operator/kube/CMakeLists.txt.
#pragma once

#include <cstdlib>
#include <string_view>

#include "operator/kube/http_transport.h"

namespace trainyard::control {

inline HttpLibrary* libraryUnderTest() {
  const char* name = std::getenv("TRAINYARD_TEST_HTTP");
  const bool other = name != nullptr && std::string_view(name) == "cpprestsdk";
  return other ? &cpprestsdk : &boostBeast;
}

}  // namespace trainyard::control
