// base^n as TensorFlow's Adam has it: a float32 variable multiplied once a step, every product
// rounded.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace trainyard::runtime::internal {

// A function of n alone, whatever was asked before. Every kStride-th power met so far is kept (4
// bytes per kStride steps), and the last one given: the next step costs one product, any known
// stretch at most kStride, the first call far ahead one product per step once. Thread-safe.
class RunningPower {
 public:
  explicit RunningPower(float base);
  // base * base * ... * base, n factors, multiplied from the left. Precondition: n >= 1.
  float at(std::int64_t n);

 private:
  static constexpr std::int64_t kStride = 1024;
  const float base_;
  std::mutex mutex_;
  std::vector<float> kept_;  // kept_[k]: power 1 + k kStride; guarded by mutex_
  std::int64_t last_n_ = 1;  // guarded by mutex_
  float last_;               // power last_n_; guarded by mutex_
};

}  // namespace trainyard::runtime::internal
