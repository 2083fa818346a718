#include "runtime/data/dataset.h"

namespace trainyard::runtime {

const Columns& Dataset::columns() const {
  static const Columns none;
  return none;
}

}  // namespace trainyard::runtime
