#include "operator/process/linked_http.h"

namespace trainyard::control {

const LinkedHttp kLinkedHttp{"beast", &boostBeast};

}  // namespace trainyard::control
