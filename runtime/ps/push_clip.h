// Clipping where no common step has a norm: each push by its own, as tf.clip_by_global_norm does
// between compute_gradients and apply_gradients.
#pragma once

#include <vector>

#include "runtime/train/gradient.h"

namespace trainyard::runtime::ps {

// `gradients` are sums over `samples` >= 1 samples. Returns the norm of their mean over all
// variables (see SquareSum: exact, then rounded). Where it is above `clip_norm` > 0, all values are
// multiplied by clip_norm / norm, divided in double and rounded to float, in memory of their own.
// Precondition: all values are finite.
double clipPush(double clip_norm, int samples, std::vector<Gradient>& gradients);

}  // namespace trainyard::runtime::ps
