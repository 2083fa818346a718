// As http_library.h, of whole connections.
#pragma once

#include "operator/kube/connection.h"
#include "tests/operator/kube/http_library.h"

namespace trainyard::control {

inline ConnectionOptions byLibraryUnderTest() {
  ConnectionOptions options;
  options.http.library = libraryUnderTest();
  return options;
}

}  // namespace trainyard::control
