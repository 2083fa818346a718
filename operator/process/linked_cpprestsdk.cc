#include "operator/process/linked_http.h"

namespace trainyard::control {

const LinkedHttp kLinkedHttp{"cpprestsdk", &cpprestsdk};

}  // namespace trainyard::control
