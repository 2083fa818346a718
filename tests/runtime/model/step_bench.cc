// CPU time of one training step on this thread: model_step_bench [mnist_cnn|mlp] [batch] [steps].
// CPU time, because other processes may share the cores.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/core/rng.h"
#include "base/core/strings.h"
#include "base/process/freed_memory.h"
#include "runtime/catalog/catalog.h"
#include "runtime/model/model.h"

namespace trainyard::runtime {
namespace {

double cpuMillis() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

Batch randomBatch(int size) {
  Rng rng(7);
  Batch batch;
  batch.shape = {28, 28, 1};
  for (int i = 0; i < size * 28 * 28; ++i) batch.images.push_back(static_cast<float>(rng.unit()));
  for (int i = 0; i < size; ++i) {
    batch.labels.push_back(static_cast<std::int64_t>(rng.below(10)));
    batch.keys.push_back(i);
  }
  return batch;
}

int run(const std::string& name, int size, int steps) {
  keepFreedMemory();
  setComputeThreads(1);
  v1::ModelSpec spec;
  spec.set_name(name);
  if (name == "mnist_cnn") spec.set_dropout(0.5);
  if (name == "mlp") spec.mutable_hidden()->Add(4096);
  if (name == "mlp") spec.mutable_hidden()->Add(4096);
  auto model = makeModel(spec, {28, 28, 1}, 10, 1);
  if (!model.ok()) return std::puts(model.status().ToString().c_str()), 1;
  for (std::size_t i = 0; i < (*model)->variables().size(); ++i) {
    initialise((*model)->variables()[i], 1, 0, (*model)->weights(static_cast<int>(i)));
  }
  const Batch batch = randomBatch(size);
  std::printf("%s\n%s, batch %d\n", mathLibraries().c_str(), name.c_str(), size);
  double begin = 0;
  const GradientSink print = [&](Gradient g) {
    std::printf("  %7.2f ms  %s\n", cpuMillis() - begin,
                (*model)->variables()[g.variable].name.c_str());
  };
  std::vector<double> times;
  for (int i = 0; i < steps + 3; ++i) {
    begin = cpuMillis();
    const auto loss =
        (*model)->forwardBackward(batch, i == 2 ? print : GradientSink([](const Gradient&) {}));
    if (!loss.ok()) return std::puts(loss.status().ToString().c_str()), 1;
    if (i >= 3) times.push_back(cpuMillis() - begin);
  }
  std::sort(times.begin(), times.end());
  std::printf("CPU per step: least %.1f ms, median %.1f ms\n", times.front(),
              times[times.size() / 2]);
  begin = cpuMillis();
  if (!(*model)->evaluate(batch).ok()) return 1;
  std::printf("CPU per evaluation: %.1f ms\n", cpuMillis() - begin);
  return 0;
}

}  // namespace
}  // namespace trainyard::runtime

int main(int argc, char** argv) {
  const int size = argc > 2 ? trainyard::parseNumber<int>(argv[2]).value_or(128) : 128;
  const int steps = argc > 3 ? trainyard::parseNumber<int>(argv[3]).value_or(20) : 20;
  return trainyard::runtime::run(argc > 1 ? argv[1] : "mnist_cnn", size, steps);
}
