#include "base/core/commit.h"

namespace trainyard {

const char* builtCommit() {
  return TRAINYARD_COMMIT;
}

}  // namespace trainyard
