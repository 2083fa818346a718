// The step loop of a worker with nobody to synchronize with: what a step costs without parameter
// servers. Several of these run at once are the other side of the synchronizer's share.
//
//   trainyard-bench-compute --images FILE --labels FILE --steps 60
//
// With --server HOST:PORT (bench/push_pull.cc, --shape barrier) workers wait for each other at the
// end of each step, but move nothing: what of the share is waiting for the slower one.
//
// Reads its data, prints "ready", waits for a line, trains, prints one JSON object.

#include <iostream>

#include "CLI/CLI.hpp"
#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/process/freed_memory.h"
#include "bench/ps_members.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/catalog/catalog.h"
#include "runtime/compute/trainer.h"
#include "runtime/placement/placement.h"

namespace trainyard::runtime {
namespace {

struct Flags {
  std::string model = "mnist_cnn";
  std::string images, labels;
  int batch = 128;
  int steps = 60;
  ps::BenchWorker self;
};

// Hands out one step after the other and drops every gradient: the weights stay as they are.
class NoSynchronizer : public Synchronizer {
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
  bool push(Gradient) override { return true; }
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

// All steps end together, at the servers.
class Barrier final : public NoSynchronizer {
 public:
  Barrier(int batch, int steps) : NoSynchronizer(batch, steps) {}
  Status open(const ps::BenchWorker& self) {
    const int servers = static_cast<int>(self.servers.size());
    const std::vector<Variable> variables = ps::barrierVariables(servers);
    TY_ASSIGN_OR_RETURN(placement_, place({}, variables, servers));
    weights_.resize(variables.size());
    std::vector<std::span<float>> spans;
    for (float& weight : weights_) spans.emplace_back(&weight, 1);
    TY_ASSIGN_OR_RETURN(servers_, ps::synchronizerOf(self, placement_, std::move(spans)));
    return absl::OkStatus();
  }
  StatusOr<Turn> next() override {
    TY_RETURN_IF_ERROR(servers_->next().status());
    return NoSynchronizer::next();
  }
  StatusOr<StepOutcome> finish(const BatchLoss& loss) override {
    for (int v = static_cast<int>(weights_.size()) - 1; v >= 0; --v)
      servers_->push({v, std::span<const float>(&kNothing, 1), nullptr});
    TY_RETURN_IF_ERROR(servers_->finish({loss.loss_sum, 1}).status());
    return NoSynchronizer::finish(loss);
  }

 private:
  static constexpr float kNothing = 0;
  Placement placement_;
  std::vector<float> weights_;
  std::unique_ptr<ps::PsSynchronizer> servers_;  // refers to the two before it
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
  Barrier barrier(flags.batch, flags.steps);
  const bool meets = !flags.self.servers.empty();
  if (meets) TY_RETURN_IF_ERROR(barrier.open(flags.self));
  Times times;
  Trainer trainer(data, *model, meets ? barrier : alone, times, 1, systemClock());
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
  app.add_option("--server", flags.self.servers, "HOST:PORT of every server to meet at, in order");
  app.add_option("--index", flags.self.index, "of this worker, with --server");
  app.add_option("--workers", flags.self.workers, "that meet")->check(CLI::PositiveNumber);
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
