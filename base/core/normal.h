// Normal random numbers from uniform ones.
#pragma once

#include <algorithm>

namespace trainyard {

// The quantile of a standard normal variable that lies within two standard deviations, for u in
// [0, 1].
//
// With x = (2 u - 1) P(|Z| <= 2) it is sqrt(2) erfinv(x), here x times a ratio of polynomials in
// x^2, fitted to that over the interval (least squares of the relative error, weighted anew until
// that is level; below 1e-7 everywhere). Of a table of millions of rows most of the time of a step
// would be logarithms and cosines, and this has the same bits whatever library there is.
inline double truncatedQuantile(double u) {
  const double x = (2 * u - 1) * 0.9544997361036416;
  const double y = x * x;
  const double p =
      1.25331422241 +
      y * (-3.05145496991 + y * (2.49696606478 + y * (-0.746594301728 + y * 0.0500636284978)));
  const double q =
      1 + y * (-2.69650355767 + y * (2.55424490929 + y * (-0.973676127242 + y * 0.116672458653)));
  return std::clamp(x * p / q, -2.0, 2.0);
}

}  // namespace trainyard
