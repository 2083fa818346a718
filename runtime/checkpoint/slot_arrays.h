// The optimizer's arrays beside some weights, which checkpoints read while training goes on.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace trainyard::runtime {

// In the optimizer's order, each as long as the weights. Copies share the arrays until one of them
// is to change (copy on write): to copy takes no time, and memory only where a step comes before
// the other copy has gone. An object is one thread's at a time; copies of it may be read and end
// elsewhere.
class SlotArrays {
 public:
  using Arrays = std::vector<std::vector<float>>;

  SlotArrays() : SlotArrays(Arrays{}) {}
  // NOLINTNEXTLINE(google-explicit-constructor): nothing else than its arrays
  SlotArrays(Arrays arrays) : arrays_(std::make_shared<Arrays>(std::move(arrays))) {}
  SlotArrays(const SlotArrays& other) : arrays_(other.arrays_), shared_(true) {
    other.shared_ = true;
  }
  SlotArrays(SlotArrays&& other) noexcept = default;
  SlotArrays& operator=(SlotArrays other) noexcept {
    arrays_ = std::move(other.arrays_);
    shared_ = other.shared_;
    return *this;
  }
  ~SlotArrays() = default;

  std::size_t size() const { return arrays_->size(); }
  const std::vector<float>& operator[](std::size_t slot) const { return (*arrays_)[slot]; }
  const Arrays& arrays() const { return *arrays_; }

  // To be written: nobody else has them.
  Arrays& own() {
    if (!shared_) return *arrays_;
    // By a holder of its own: to read the count alone would not order what is written from here on
    // behind what was read by copies that have gone.
    const std::shared_ptr<const Arrays> held = arrays_;
    if (held.use_count() > 2) arrays_ = std::make_shared<Arrays>(*held);
    shared_ = false;
    return *arrays_;
  }

 private:
  std::shared_ptr<Arrays> arrays_;
  mutable bool shared_ = false;  // there was another copy
};

}  // namespace trainyard::runtime
