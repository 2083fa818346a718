#include "runtime/optimizer/internal/rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/core/check.h"
#include "runtime/optimizer/internal/running_power.h"
#include "runtime/tensor/kernels.h"

namespace trainyard::runtime::internal {
namespace {

// A rule is a small struct of constants with
//   kSlots, names(), initial(slot)
//   Step: what one update adds to the constants, made by at(context)
//   Step::update(w, g, slots): the new weight of one element; changes slots[0..kSlots)
// Every product and sum stands in the order of TensorFlow's kernel.
//
// With kDecay the rule starts from w - w decay lr. (Decay 0 would do the same but make 0 of -0.)
template <typename Step, int kSlots, bool kDecay>
struct UpdateLoop {
  static TY_ALWAYS_INLINE void run(Step step, float decay, float lr, const float* w, const float* g,
                                   float* w_new, std::array<float*, 3> slots, std::int64_t n) {
    float* const s0 = slots[0];
    float* const s1 = slots[1];
    float* const s2 = slots[2];
    // Arrays are either disjoint or the same one, so that no element depends on another: true
    // whatever the compiler can prove about the pointers.
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      float a = 0;
      float b = 0;
      float c = 0;
      if constexpr (kSlots > 0) a = s0[i];
      if constexpr (kSlots > 1) b = s1[i];
      if constexpr (kSlots > 2) c = s2[i];
      float weight = w[i];
      if constexpr (kDecay) weight = weight - weight * decay * lr;
      const float updated = step.update(weight, g[i], a, b, c);
      if constexpr (kSlots > 0) s0[i] = a;
      if constexpr (kSlots > 1) s1[i] = b;
      if constexpr (kSlots > 2) s2[i] = c;
      w_new[i] = updated;
    }
  }
};

template <typename Rule>
class ElementwiseOptimizer : public Optimizer {
 public:
  template <typename... Args>
  explicit ElementwiseOptimizer(RuleCommon common, Args... args)
      : common_(common), rule_{args...}, names_(Rule::names()) {}

  const std::vector<std::string>& slots() const override { return names_; }

  float initialSlot(std::size_t slot) const override {
    TY_CHECK(slot < names_.size(), "the caller knows how many slots there are");
    return rule_.initial(slot);
  }

  void apply(const UpdateContext& context, std::span<const float> w,
             std::span<const float> gradient, std::span<float> w_new,
             std::span<const std::span<float>> slots) const override {
    constexpr int kSlots = Rule::kSlots;
    TY_CHECK(w.size() == gradient.size() && w.size() == w_new.size() && slots.size() == kSlots,
             "the arrays of one chunk are equally long");
    std::array<float*, 3> pointers{};
    for (std::size_t i = 0; i < slots.size(); ++i) {
      TY_CHECK(slots[i].size() == w.size(), "a slot is as long as its chunk");
      pointers[i] = slots[i].data();
    }
    const auto step = rule_.at(context);
    const FlushSubnormals flush;
    const auto n = static_cast<std::int64_t>(w.size());
    using Step = std::remove_const_t<decltype(step)>;
    if (common_.weight_decay > 0) {
      runOn<UpdateLoop<Step, kSlots, true>>(common_.isa, step, common_.weight_decay,
                                            context.learning_rate, w.data(), gradient.data(),
                                            w_new.data(), pointers, n);
    } else {
      runOn<UpdateLoop<Step, kSlots, false>>(common_.isa, step, 0.0f, 0.0f, w.data(),
                                             gradient.data(), w_new.data(), pointers, n);
    }
  }

 private:
  const RuleCommon common_;
  const Rule rule_;
  const std::vector<std::string> names_;
};

// ApplyGradientDescent
struct Sgd {
  static constexpr int kSlots = 0;
  static std::vector<std::string> names() { return {}; }
  float initial(std::size_t) const { return 0; }
  struct Step {
    float lr;
    TY_ALWAYS_INLINE float update(float w, float g, float&, float&, float&) const {
      return w - g * lr;
    }
  };
  Step at(const UpdateContext& context) const { return {context.learning_rate}; }
};

// ApplyMomentum
template <bool kNesterov>
struct Momentum {
  static constexpr int kSlots = 1;
  static std::vector<std::string> names() { return {"momentum"}; }
  float initial(std::size_t) const { return 0; }
  struct Step {
    float lr;
    float momentum;
    TY_ALWAYS_INLINE float update(float w, float g, float& accum, float&, float&) const {
      accum = accum * momentum + g;
      if constexpr (kNesterov) return w - (g * lr + accum * momentum * lr);
      return w - accum * lr;
    }
  };
  Step at(const UpdateContext& context) const { return {context.learning_rate, momentum}; }
  float momentum;
};

// ApplyAdagrad. TensorFlow multiplies by an estimate of the inverse root that is within two units
// of the last place; here it is exact, so that every machine has the same bits.
struct Adagrad {
  static constexpr int kSlots = 1;
  static std::vector<std::string> names() { return {"accumulator"}; }
  float initial(std::size_t) const { return initial_accumulator; }
  struct Step {
    float lr;
    TY_ALWAYS_INLINE float update(float w, float g, float& accum, float&, float&) const {
      accum += g * g;
      return w - g * lr * (1.0f / std::sqrt(accum));
    }
  };
  Step at(const UpdateContext& context) const { return {context.learning_rate}; }
  float initial_accumulator;
};

// ApplyAdadelta; the same remark.
struct Adadelta {
  static constexpr int kSlots = 2;
  static std::vector<std::string> names() { return {"accum", "accum_update"}; }
  float initial(std::size_t) const { return 0; }
  struct Step {
    float lr;
    float rho;
    float epsilon;
    TY_ALWAYS_INLINE float update(float w, float g, float& accum, float& accum_update,
                                  float&) const {
      accum = accum * rho + g * g * (1.0f - rho);
      const float update =
          std::sqrt(accum_update + epsilon) * (1.0f / std::sqrt(accum + epsilon)) * g;
      accum_update = accum_update * rho + update * update * (1.0f - rho);
      return w - update * lr;
    }
  };
  Step at(const UpdateContext& context) const { return {context.learning_rate, rho, epsilon}; }
  float rho;
  float epsilon;
};

// ApplyAdam
struct Adam {
  static constexpr int kSlots = 2;
  static std::vector<std::string> names() { return {"m", "v"}; }
  float initial(std::size_t) const { return 0; }
  struct Step {
    float alpha;
    float beta1;
    float beta2;
    float epsilon;
    TY_ALWAYS_INLINE float update(float w, float g, float& m, float& v, float&) const {
      m += (g - m) * (1.0f - beta1);
      v += (g * g - v) * (1.0f - beta2);
      return w - (m * alpha) / (std::sqrt(v) + epsilon);
    }
  };
  Step at(const UpdateContext& context) const {
    const float power1 = powers->beta1.at(context.step + 1);
    const float power2 = powers->beta2.at(context.step + 1);
    const float alpha = context.learning_rate * std::sqrt(1.0f - power2) / (1.0f - power1);
    return {alpha, beta1, beta2, epsilon};
  }
  struct Powers {
    Powers(float b1, float b2) : beta1(b1), beta2(b2) {}
    RunningPower beta1;
    RunningPower beta2;
  };
  float beta1;
  float beta2;
  float epsilon;
  std::shared_ptr<Powers> powers;
};

// ApplyRMSProp
struct RmsProp {
  static constexpr int kSlots = 2;
  static std::vector<std::string> names() { return {"rms", "momentum"}; }
  float initial(std::size_t slot) const { return slot == 0 ? 1 : 0; }
  struct Step {
    float lr;
    float rho;
    float momentum;
    float epsilon;
    TY_ALWAYS_INLINE float update(float w, float g, float& ms, float& mom, float&) const {
      ms += (g * g - ms) * (1.0f - rho);
      mom = mom * momentum + (g * lr) / std::sqrt(ms + epsilon);
      return w - mom;
    }
  };
  Step at(const UpdateContext& context) const {
    return {context.learning_rate, rho, momentum, epsilon};
  }
  float rho;
  float momentum;
  float epsilon;
};

// ApplyCenteredRMSProp
struct CenteredRmsProp {
  static constexpr int kSlots = 3;
  static std::vector<std::string> names() { return {"rms", "momentum", "mg"}; }
  float initial(std::size_t slot) const { return slot == 0 ? 1 : 0; }
  struct Step {
    float lr;
    float rho;
    float momentum;
    float epsilon;
    TY_ALWAYS_INLINE float update(float w, float g, float& ms, float& mom, float& mg) const {
      ms += (g * g - ms) * (1.0f - rho);
      mg += (g - mg) * (1.0f - rho);
      const float variance = (ms - mg * mg) + epsilon;
      mom = mom * momentum + (g * lr) / std::sqrt(variance);
      return w - mom;
    }
  };
  Step at(const UpdateContext& context) const {
    return {context.learning_rate, rho, momentum, epsilon};
  }
  float rho;
  float momentum;
  float epsilon;
};

// ApplyFtrlV2, with learning_rate_power -0.5
struct Ftrl {
  static constexpr int kSlots = 2;
  static std::vector<std::string> names() { return {"accum", "linear"}; }
  float initial(std::size_t slot) const { return slot == 0 ? initial_accumulator : 0; }
  struct Step {
    float lr;
    float l1;
    float twice_l2;
    float twice_shrinkage;
    TY_ALWAYS_INLINE float update(float w, float g, float& accum, float& linear, float&) const {
      const float next = accum + g * g;
      const float root = std::sqrt(next);
      linear += (g + twice_shrinkage * w) - (root - std::sqrt(accum)) / lr * w;
      accum = next;
      const float bounded = std::max(std::min(linear, l1), -l1);
      return (bounded - linear) / (root / lr + twice_l2);
    }
  };
  Step at(const UpdateContext& context) const {
    return {context.learning_rate, terms.l1, 2.0f * terms.l2, 2.0f * terms.l2_shrinkage};
  }
  float initial_accumulator;
  FtrlTerms terms;
};

}  // namespace

std::unique_ptr<Optimizer> makeSgd(RuleCommon common) {
  return std::make_unique<ElementwiseOptimizer<Sgd>>(common);
}

std::unique_ptr<Optimizer> makeMomentum(RuleCommon common, float momentum, bool nesterov) {
  if (nesterov) return std::make_unique<ElementwiseOptimizer<Momentum<true>>>(common, momentum);
  return std::make_unique<ElementwiseOptimizer<Momentum<false>>>(common, momentum);
}

std::unique_ptr<Optimizer> makeAdagrad(RuleCommon common, float initial_accumulator) {
  return std::make_unique<ElementwiseOptimizer<Adagrad>>(common, initial_accumulator);
}

std::unique_ptr<Optimizer> makeAdadelta(RuleCommon common, float rho, float epsilon) {
  return std::make_unique<ElementwiseOptimizer<Adadelta>>(common, rho, epsilon);
}

std::unique_ptr<Optimizer> makeAdam(RuleCommon common, float beta1, float beta2, float epsilon) {
  return std::make_unique<ElementwiseOptimizer<Adam>>(common, beta1, beta2, epsilon,
                                                      std::make_shared<Adam::Powers>(beta1, beta2));
}

std::unique_ptr<Optimizer> makeRmsProp(RuleCommon common, float rho, float momentum, float epsilon,
                                       bool centered) {
  if (centered) {
    return std::make_unique<ElementwiseOptimizer<CenteredRmsProp>>(common, rho, momentum, epsilon);
  }
  return std::make_unique<ElementwiseOptimizer<RmsProp>>(common, rho, momentum, epsilon);
}

std::unique_ptr<Optimizer> makeFtrl(RuleCommon common, float initial_accumulator, FtrlTerms terms) {
  return std::make_unique<ElementwiseOptimizer<Ftrl>>(common, initial_accumulator, terms);
}

}  // namespace trainyard::runtime::internal
