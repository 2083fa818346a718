// A training step of a built-in model as it is computed, and beside it, in turns, as LibTorch
// computes it: processor time of this thread, because other processes may share the cores.
//
//   trainyard-bench-models --model vgg19 --side 224 --channels 3 --batch 4 --steps 5
//
// Prints one JSON object: the medians in milliseconds, the ratio of the medians, and what computed.
#include <time.h>

#include <algorithm>
#include <iostream>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/rng.h"
#include "base/core/strings.h"
#include "base/process/freed_memory.h"
#include "bench/torch_network.h"
#include "fmt/format.h"
#include "runtime/catalog/catalog.h"
#include "runtime/model/layer_specs.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {
namespace {

constexpr int kClasses = 10;

struct Flags {
  std::string model = "mnist_cnn";
  int side = 28;
  int channels = 1;
  int batch = 128;
  int steps = 20;
};

double cpuMillis() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

double medianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Random images, which stay the same.
struct Data {
  explicit Data(const Flags& flags) : shape{flags.side, flags.side, flags.channels} {
    Rng rng(7);
    const auto values = static_cast<std::size_t>(shape[0]) * shape[1] * shape[2];
    for (std::size_t i = 0; i < values * flags.batch; ++i)
      images.push_back(static_cast<float>(rng.unit()));
    for (int i = 0; i < flags.batch; ++i) {
      labels.push_back(static_cast<std::int64_t>(rng.below(kClasses)));
      keys.push_back(i);
    }
  }
  Samples samples() const { return {shape, images.data(), labels, keys}; }

  std::array<int, 3> shape;
  std::vector<float> images;
  std::vector<std::int64_t> labels, keys;
};

struct Described {
  std::vector<Variable> variables;
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<LayerSpec> layers;
};

StatusOr<Described> describe(const Flags& flags, const Data& data) {
  v1::ModelSpec spec;
  spec.set_name(flags.model);
  if (flags.model != "mlp") spec.set_dropout(0.5);
  for (int i = 0; flags.model == "mlp" && i < 2; ++i) spec.add_hidden(4096);
  Described result;
  TY_ASSIGN_OR_RETURN(result.variables, catalogVariables(spec, data.shape, kClasses));
  std::erase_if(result.variables, [](const Variable& v) { return !v.trainable; });
  for (const Variable& v : result.variables) result.shapes.push_back(v.shape);
  result.layers = layersOf(spec, result.variables);
  return result;
}

void fill(Network& network, const std::vector<Variable>& variables) {
  for (std::size_t v = 0; v < variables.size(); ++v)
    initialise(variables[v], 1, 0, network.parameter(static_cast<int>(v)));
}

double stepMillis(Network& network, const Data& data) {
  const double begin = cpuMillis();
  network.forwardBackward(data.samples(), [](const auto&...) {});
  return cpuMillis() - begin;
}

Status run(const Flags& flags) {
  setComputeThreads(1);
  const Data data(flags);
  TY_ASSIGN_OR_RETURN(const Described model, describe(flags, data));
  const auto ours = makeNetwork(model.shapes, model.layers, 1);
  const auto theirs = makeTorchNetwork(model.shapes, model.layers, 1);
  fill(*ours, model.variables);
  fill(*theirs, model.variables);
  constexpr int kWarmUp = 2;
  std::vector<double> our_times, their_times;
  for (int i = 0; i < flags.steps + kWarmUp; ++i) {
    const double our_time = stepMillis(*ours, data);
    const double their_time = stepMillis(*theirs, data);
    if (i < kWarmUp) continue;
    our_times.push_back(our_time);
    their_times.push_back(their_time);
  }
  const double our_median = medianOf(our_times), their_median = medianOf(their_times);
  std::cout << fmt::format(
      "{{\"model\": \"{}\", \"batch\": {}, \"milliseconds\": {:.2f}, \"libtorch\": {:.2f}, "
      "\"ratio\": {:.3f}, \"libraries\": \"{}\"}}\n",
      flags.model, flags.batch, our_median, their_median, our_median / their_median,
      mathLibraries());
  return absl::OkStatus();
}

}  // namespace
}  // namespace trainyard::runtime

int main(int argc, char** argv) {
  using namespace trainyard;
  using namespace trainyard::runtime;
  keepFreedMemory();
  CLI::App app{"A training step beside LibTorch's."};
  Flags flags;
  app.add_option("--model", flags.model)->check(CLI::IsMember({"mnist_cnn", "mlp", "vgg19"}));
  app.add_option("--side", flags.side, "of the images, in pixels")->check(CLI::PositiveNumber);
  app.add_option("--channels", flags.channels)->check(CLI::PositiveNumber);
  app.add_option("--batch", flags.batch)->check(CLI::PositiveNumber);
  app.add_option("--steps", flags.steps)->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const Status status = run(flags);
  if (status.ok()) return kExitOk;
  std::cerr << "error: " << fromAbsl(status.message()) << "\n";
  return kExitFailure;
}
