// OpenBLAS.
#pragma once

#include <string>

#include "runtime/model/matrix.h"

namespace trainyard::runtime {

// As multiply().
void blasMultiply(const Matrix& a, const Matrix& b, Into into, float* out);
// "OpenBLAS 0.3.21"
std::string blasName();
// Whether it has taken this processor for one with AVX2 at least. One that is younger than the
// library may be taken for a very old one, and then computes at a quarter of its speed.
bool blasKnowsProcessor();
// For the variant of the library that does not ask OpenMP.
void setBlasThreads(int n);

}  // namespace trainyard::runtime
