// The step loop of a worker with nobody to synchronize with: what a step costs without parameter
// servers. Several of these run at once are the other side of the synchronizer's share.
//
//   trainyard-bench-compute --images FILE --labels FILE --steps 60
//
// Reads its data, prints "ready", waits for a line, trains, prints one JSON object.

#include <iostream>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/process/freed_memory.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/catalog/catalog.h"
#include "runtime/train/trainer.h"

namespace trainyard::runtime {
namespace {

struct Flags {
  std::string model = "mnist_cnn";
  std::string images, labels;
  int batch = 128;
  int steps = 60;
};

// Hands out one step after the other and drops every gradient: the weights stay as they are.
class NoSynchronizer final : public Synchronizer {
 public:
  NoSynchronizer(int batch, int steps) : batch_(batch), steps_(steps) {}
  StatusOr<Turn> next() override {
    Turn turn;
    turn.kind = step_ < steps_ ? Turn::Kind::kTrain : Turn::Kind::kDone;
    turn.step = step_;
    turn.samples = batch_;
    turn.step_samples = batch_;
    turn.first_position = static_cast<std::int64_t>(step_) * batch_;
    return turn;
  }
  void push(Gradient) override {}
  StatusOr<StepOutcome> finish(const BatchLoss& loss) override {
    ++step_;
    return StepOutcome{true, step_ - 1, loss.loss_sum / loss.samples, std::nullopt};
  }
  bool interrupted() const override { return false; }
  void evaluated(const BatchScore&) override {}
  void abort(std::int64_t, std::string_view, std::string_view reason) override {
    std::cerr << "error: " << reason << "\n";
  }

 private:
  const int batch_;
  const int steps_;
  int step_ = 0;
};

class Times final : public TrainObserver {
 public:
  Status onStep(const StepRecord& record) override {
    millis.push_back(record.seconds * 1e3);
    return absl::OkStatus();
  }
  std::vector<double> millis;
};

v1::DataSpec dataOf(const Flags& flags) {
  v1::DataSpec data;
  data.set_format("idx");
  data.set_images(flags.images);
  data.set_labels(flags.labels);
  return data;
}

Status run(const Flags& flags) {
  setComputeThreads(1);
  TY_ASSIGN_OR_RETURN(const DataSplits data, openData(dataOf(flags)));
  v1::ModelSpec spec;
  spec.set_name(flags.model);
  if (flags.model == "mnist_cnn") {
    spec.set_dropout(0.5);
  } else {
    for (int i = 0; i < 2; ++i) spec.add_hidden(4096);
  }
  TY_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                      makeModel(spec, data.train->shape(), data.train->classes(), 1));
  for (std::size_t v = 0; v < model->variables().size(); ++v) {
    initialise(model->variables()[v], 1, 0, model->weights(static_cast<int>(v)));
  }
  NoSynchronizer alone(flags.batch, flags.steps);
  Times times;
  Trainer trainer(data, *model, alone, times, 1, systemClock());
  std::cout << "ready" << std::endl;
  std::string line;
  std::getline(std::cin, line);
  TY_RETURN_IF_ERROR(trainer.run().status());
  std::cout << fmt::format("{{\"milliseconds\": [{:.3f}]}}\n", fmt::join(times.millis, ", "));
  return absl::OkStatus();
}

}  // namespace
}  // namespace trainyard::runtime

int main(int argc, char** argv) {
  using namespace trainyard;
  using namespace trainyard::runtime;
  keepFreedMemory();
  CLI::App app{"Training steps of one worker without a synchronizer."};
  Flags flags;
  app.add_option("--model", flags.model)->check(CLI::IsMember({"mnist_cnn", "mlp"}));
  app.add_option("--images", flags.images, "IDX file")->required();
  app.add_option("--labels", flags.labels, "IDX file")->required();
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
