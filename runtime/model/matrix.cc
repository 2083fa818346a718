#include "runtime/model/matrix.h"

#include "runtime/model/blas.h"
#include "runtime/model/onednn.h"

namespace trainyard::runtime {

bool oneDnnMultiplies() {
  // Without AVX-512 oneDNN's product is slower than OpenBLAS's, up to half as fast.
  static const bool result = oneDnnHasAvx512() || !blasKnowsProcessor();
  return result;
}

void multiply(const Matrix& a, const Matrix& b, Into into, float* out) {
  if (oneDnnMultiplies()) {
    oneDnnMultiply(a, b, into, out);
  } else {
    blasMultiply(a, b, into, out);
  }
}

}  // namespace trainyard::runtime
