// The HTTP library of this program. Each has a program of its own, since one that is linked takes
// memory whether it is used or not: cpprestsdk 2.4 MiB of an operator's 37.
#pragma once

#include <string_view>

#include "operator/kube/http_transport.h"

namespace trainyard::control {

struct LinkedHttp {
  std::string_view name;  // by --http-library
  HttpLibrary* library;
};

// linked_beast.cc or linked_cpprestsdk.cc.
extern const LinkedHttp kLinkedHttp;

}  // namespace trainyard::control
