#include "runtime/model/onednn.h"

#include <dnnl.h>
#include <dnnl_debug.h>

#include <array>
#include <initializer_list>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/core/free_with.h"
#include "fmt/format.h"
#include "runtime/model/internal/buffer.h"

namespace trainyard::runtime {
namespace {

void check(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  throw std::runtime_error(fmt::format("oneDNN: {}: {}", what, dnnl_status2str(status)));
}

using Engine = std::unique_ptr<dnnl_engine, FreeWith<dnnl_engine_destroy>>;
using Stream = std::unique_ptr<dnnl_stream, FreeWith<dnnl_stream_destroy>>;
using Attributes = std::unique_ptr<dnnl_primitive_attr, FreeWith<dnnl_primitive_attr_destroy>>;
using Description = std::unique_ptr<dnnl_primitive_desc, FreeWith<dnnl_primitive_desc_destroy>>;
using Primitive = std::unique_ptr<dnnl_primitive, FreeWith<dnnl_primitive_destroy>>;
using MemoryObject = std::unique_ptr<dnnl_memory, FreeWith<dnnl_memory_destroy>>;
using Layout = dnnl_memory_desc_t;

Engine makeEngine() {
  dnnl_engine_t engine = nullptr;
  check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
  return Engine(engine);
}

Stream makeStream(dnnl_engine_t engine) {
  dnnl_stream_t stream = nullptr;
  check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
  return Stream(stream);
}

// Primitives compute in scratch memory that they are given.
Attributes makeAttributes() {
  dnnl_primitive_attr_t attributes = nullptr;
  check(dnnl_primitive_attr_create(&attributes), "attributes");
  Attributes result(attributes);
  check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
        "attributes");
  return result;
}

template <std::size_t N>
Layout layoutOf(const std::array<dnnl_dim_t, N>& sizes, dnnl_format_tag_t order) {
  Layout layout{};
  check(dnnl_memory_desc_init_by_tag(&layout, static_cast<int>(N), sizes.data(), dnnl_f32, order),
        "layout");
  return layout;
}

// oneDNN names dimensions in the order NCHW whatever the order in memory.
Layout imageLayout(const ImageGrid& grid) {
  return layoutOf<4>({grid.count, grid.channels, grid.height, grid.width}, dnnl_nhwc);
}

// Order `any` is oneDNN's choice.
Layout kernelLayout(const OneDnnConvolution::Shape& shape, dnnl_format_tag_t order) {
  return layoutOf<4>({shape.outputs, shape.input.channels, shape.kernel, shape.kernel}, order);
}

std::int64_t floatsOf(const Layout& layout) {
  return static_cast<std::int64_t>((dnnl_memory_desc_get_size(&layout) + sizeof(float) - 1) /
                                   sizeof(float));
}

struct Argument {
  int number = 0;
  const Layout& layout;
  const void* data = nullptr;
};

}  // namespace

struct OneDnnContext {
  Engine engine = makeEngine();
  Stream stream = makeStream(engine.get());
  Attributes attributes = makeAttributes();
  Buffer<float> scratchpad;
  Buffer<float> kernel;  // in oneDNN's order
};

namespace {

// One thing that oneDNN computes.
class Operation {
 public:
  Operation(OneDnnContext& context, Description description)
      : context_(context), description_(std::move(description)) {
    dnnl_primitive_t primitive = nullptr;
    check(dnnl_primitive_create(&primitive, description_.get()), "primitive");
    primitive_.reset(primitive);
    scratchpad_ = layout(dnnl_query_scratchpad_md);
  }

  dnnl_primitive_desc_t description() const { return description_.get(); }
  Layout layout(dnnl_query_t what) const {
    return *dnnl_primitive_desc_query_md(description_.get(), what, 0);
  }

  void run(std::initializer_list<Argument> arguments) {
    std::vector<MemoryObject> memories;
    std::vector<dnnl_exec_arg_t> bound;
    const auto bind = [&](const Argument& argument) {
      dnnl_memory_t memory = nullptr;
      check(dnnl_memory_create(&memory, &argument.layout, context_.engine.get(),
                               const_cast<void*>(argument.data)),
            "memory");
      memories.emplace_back(memory);
      bound.push_back({argument.number, memory});
    };
    for (const Argument& argument : arguments)
      if (argument.data != nullptr) bind(argument);
    const std::int64_t scratch = floatsOf(scratchpad_);
    if (scratch > 0) bind({DNNL_ARG_SCRATCHPAD, scratchpad_, context_.scratchpad.atLeast(scratch)});
    check(dnnl_primitive_execute(primitive_.get(), context_.stream.get(),
                                 static_cast<int>(bound.size()), bound.data()),
          "execution");
    check(dnnl_stream_wait(context_.stream.get()), "execution");
  }

 private:
  OneDnnContext& context_;
  Description description_;
  Primitive primitive_;
  Layout scratchpad_{};
};

Description describe(OneDnnContext& context, const dnnl_convolution_desc_t& convolution,
                     dnnl_primitive_desc_t forward) {
  dnnl_primitive_desc_t description = nullptr;
  check(dnnl_primitive_desc_create(&description, &convolution, context.attributes.get(),
                                   context.engine.get(), forward),
        "convolution");
  return Description(description);
}

// The copy of a kernel in another order.
class Reorder {
 public:
  Reorder(OneDnnContext& context, const Layout& from, const Layout& to)
      : from_(from), to_(to), operation_(context, describeReorder(context, from, to)) {}

  void run(const float* from, float* to) {
    operation_.run({{DNNL_ARG_FROM, from_, from}, {DNNL_ARG_TO, to_, to}});
  }

 private:
  static Description describeReorder(OneDnnContext& context, const Layout& from, const Layout& to) {
    dnnl_primitive_desc_t description = nullptr;
    dnnl_engine_t engine = context.engine.get();
    check(dnnl_reorder_primitive_desc_create(&description, &from, engine, &to, engine,
                                             context.attributes.get()),
          "reorder");
    return Description(description);
  }

  Layout from_;
  Layout to_;
  Operation operation_;
};

// A convolution in one direction, and the kernel's reordering for it.
struct Direction {
  Direction(OneDnnContext& context, const OneDnnConvolution::Shape& shape, Description description,
            bool gives_kernel)
      : operation(context, std::move(description)),
        kernel(
            operation.layout(gives_kernel ? dnnl_query_diff_weights_md : dnnl_query_weights_md)) {
    const Layout hwio = kernelLayout(shape, dnnl_hwio);
    if (dnnl_memory_desc_equal(&hwio, &kernel) != 0) return;
    if (gives_kernel) {
      reorder.emplace(context, kernel, hwio);
    } else {
      reorder.emplace(context, hwio, kernel);
    }
  }

  Operation operation;
  Layout kernel;
  std::optional<Reorder> reorder;  // none: the convolution takes HWIO as it is
};

}  // namespace

struct OneDnnConvolution::Primitives {
  Primitives(const Shape& s, std::shared_ptr<OneDnnContext> c)
      : shape(s), context(std::move(c)), forward(*context, shape, describeForward(), false) {}

  Description describeForward() const {
    dnnl_convolution_desc_t convolution{};
    check(dnnl_convolution_forward_desc_init(&convolution, dnnl_forward_training,
                                             dnnl_convolution_direct, &input, &any_kernel,
                                             shape.bias ? &biases : nullptr, &output,
                                             strides.data(), padding.data(), padding.data()),
          "convolution");
    return describe(*context, convolution, nullptr);
  }
  Description describeInputGradient() const {
    dnnl_convolution_desc_t convolution{};
    check(dnnl_convolution_backward_data_desc_init(&convolution, dnnl_convolution_direct, &input,
                                                   &any_kernel, &output, strides.data(),
                                                   padding.data(), padding.data()),
          "gradient of a convolution's input");
    return describe(*context, convolution, forward.operation.description());
  }
  Description describeKernelGradient() const {
    dnnl_convolution_desc_t convolution{};
    check(dnnl_convolution_backward_weights_desc_init(&convolution, dnnl_convolution_direct, &input,
                                                      &any_kernel, nullptr, &output, strides.data(),
                                                      padding.data(), padding.data()),
          "gradient of a convolution's kernel");
    return describe(*context, convolution, forward.operation.description());
  }

  // The kernel in the order that the direction takes.
  const float* ordered(Direction& direction, const float* kernel) const {
    if (!direction.reorder) return kernel;
    float* copy = context->kernel.atLeast(floatsOf(direction.kernel));
    direction.reorder->run(kernel, copy);
    return copy;
  }

  Shape shape;
  std::shared_ptr<OneDnnContext> context;
  Layout input = imageLayout(shape.input);
  Layout output = imageLayout(shape.output());
  Layout any_kernel = kernelLayout(shape, dnnl_format_tag_any);
  Layout biases = layoutOf<1>({shape.outputs}, dnnl_x);
  std::array<dnnl_dim_t, 2> strides{1, 1};
  std::array<dnnl_dim_t, 2> padding{shape.kernel / 2, shape.kernel / 2};
  Direction forward;
  // Made when they are first needed: an evaluation has no gradients.
  std::optional<Direction> input_gradient;
  std::optional<Direction> kernel_gradient;
};

OneDnnConvolution::OneDnnConvolution(const Shape& shape, std::shared_ptr<OneDnnContext> context)
    : primitives_(std::make_unique<Primitives>(shape, std::move(context))) {}
OneDnnConvolution::OneDnnConvolution(OneDnnConvolution&&) noexcept = default;
OneDnnConvolution& OneDnnConvolution::operator=(OneDnnConvolution&&) noexcept = default;
OneDnnConvolution::~OneDnnConvolution() = default;

const OneDnnConvolution::Shape& OneDnnConvolution::shape() const {
  return primitives_->shape;
}

void OneDnnConvolution::forward(const float* input, const float* kernel, const float* biases,
                                float* output) {
  Primitives& p = *primitives_;
  p.forward.operation.run({{DNNL_ARG_SRC, p.input, input},
                           {DNNL_ARG_WEIGHTS, p.forward.kernel, p.ordered(p.forward, kernel)},
                           {DNNL_ARG_BIAS, p.biases, biases},
                           {DNNL_ARG_DST, p.output, output}});
}

void OneDnnConvolution::inputGradient(const float* gradient, const float* kernel,
                                      float* input_gradient) {
  Primitives& p = *primitives_;
  if (!p.input_gradient)
    p.input_gradient.emplace(*p.context, p.shape, p.describeInputGradient(), false);
  Direction& direction = *p.input_gradient;
  direction.operation.run({{DNNL_ARG_DIFF_DST, p.output, gradient},
                           {DNNL_ARG_WEIGHTS, direction.kernel, p.ordered(direction, kernel)},
                           {DNNL_ARG_DIFF_SRC, p.input, input_gradient}});
}

void OneDnnConvolution::kernelGradient(const float* input, const float* gradient,
                                       float* kernel_gradient) {
  Primitives& p = *primitives_;
  if (!p.kernel_gradient)
    p.kernel_gradient.emplace(*p.context, p.shape, p.describeKernelGradient(), true);
  Direction& direction = *p.kernel_gradient;
  float* result =
      direction.reorder ? p.context->kernel.atLeast(floatsOf(direction.kernel)) : kernel_gradient;
  direction.operation.run({{DNNL_ARG_SRC, p.input, input},
                           {DNNL_ARG_DIFF_DST, p.output, gradient},
                           {DNNL_ARG_DIFF_WEIGHTS, direction.kernel, result}});
  if (direction.reorder) direction.reorder->run(result, kernel_gradient);
}

std::shared_ptr<OneDnnContext> makeOneDnnContext() {
  return std::make_shared<OneDnnContext>();
}

bool oneDnnHasAvx512() {
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  return (isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

void oneDnnMultiply(const Matrix& a, const Matrix& b, Into into, float* out) {
  check(dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', a.height(), b.width(),
                   a.width(), 1.0f, a.data, a.columns, b.data, b.columns,
                   into == Into::kAdd ? 1.0f : 0.0f, out, b.width()),
        "product of matrices");
}

std::string oneDnnVersion() {
  const dnnl_version_t& version = *dnnl_version();
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

}  // namespace trainyard::runtime
