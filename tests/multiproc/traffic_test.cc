// The bytes that a run shows for each parameter server are those that the kernel carried, and those
// that `trainyard plan` foretells.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "tests/multiproc/metrics_page.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

constexpr int kServers = 2;
constexpr double kTolerance = 0.02;

// Both directions, in this order.
using Bytes = std::array<double, 2>;
constexpr const char* kDirections[] = {"in", "out"};

// One server, looked at once.
struct Reading {
  Bytes payload{};        // /metrics
  Bytes wire{};           // /metrics
  Bytes kernel{};         // ss
  Bytes recorded{};       // traffic.jsonl
  Bytes recorded_wire{};  // traffic.jsonl
};

double relative(double value, double to) {
  return to > 0 ? value / to - 1 : std::nan("");
}

// What `ss` reads from the kernel for the connections of a local port.
Bytes kernelBytes(const std::filesystem::path& scratch, int port) {
  SpawnOptions spawn;
  spawn.argv = {"ss", "-tinH", "sport", "=", fmt::format(":{}", port)};
  spawn.output_file = scratch.string();
  std::error_code ignored;
  std::filesystem::remove(scratch, ignored);
  auto child = ChildProcess::spawn(spawn);
  EXPECT_TRUE(child.ok()) << child.status();
  if (!child.ok()) return {};
  EXPECT_TRUE(child->wait(systemClock().now() + std::chrono::seconds(30)).ok());
  const std::string text = readFile(scratch, 1 << 20).value_or("");
  const auto sum = [&](const std::string& name) {
    double total = 0;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      const auto [key, value] = splitFirst(word, ':');
      if (key == name) total += parseNumber<double>(value).value_or(0);
    }
    return total;
  };
  return {sum("bytes_received"), sum("bytes_acked")};
}

class TrafficTest : public RunTest, public testing::WithParamInterface<const char*> {
 protected:
  // Bytes of each server's port per step and direction, by `trainyard plan`. (What goes to another
  // server's replicas is counted there.)
  std::vector<Bytes> planned(const JobRun& run, const std::string& wire) {
    const ProgramEnd end =
        program({"trainyard", "plan", "-o", "json", "--set", "training.wireType=" + wire, "-f",
                 (run.dir().parent_path() / "job.yaml").string()});
    EXPECT_EQ(end.code, 0) << end.output;
    const auto json = nlohmann::json::parse(end.output, nullptr, false);
    std::vector<Bytes> result;
    for (const auto& ps : json.at("ps")) {
      const double replicas = ps.at("replicaBytesInPerStep");
      EXPECT_GT(replicas, 0);
      result.push_back(
          {ps.at("bytesInPerStep").get<double>() + replicas, ps.at("bytesOutPerStep")});
    }
    return result;
  }

  Reading read(const JobRun& run, int ps) {
    Reading reading;
    const nlohmann::json agent = run.agent(fmt::format("ps-{}", ps));
    if (!agent.is_object()) return reading;
    const std::string page = metricsPage(run, fmt::format("ps-{}", ps));
    reading.payload = {metricOf(page, "trainyard_ps_receive_bytes_total"),
                       metricOf(page, "trainyard_ps_transmit_bytes_total")};
    reading.wire = {metricOf(page, "trainyard_ps_wire_receive_bytes_total"),
                    metricOf(page, "trainyard_ps_wire_transmit_bytes_total")};
    reading.kernel = kernelBytes(root() / "ss", agent.at("taskPort"));
    std::ifstream in(run.dir() / "traffic.jsonl");
    nlohmann::json last;
    for (std::string line; std::getline(in, line);) {
      auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_object()) last = std::move(json);
    }
    if (!last.is_object()) return reading;
    const nlohmann::json& recorded = last.at("ps").at(static_cast<std::size_t>(ps));
    reading.recorded = {recorded.value("receivedBytes", 0.0),
                        recorded.value("transmittedBytes", 0.0)};
    reading.recorded_wire = {recorded.value("wireReceivedBytes", 0.0),
                             recorded.value("wireTransmittedBytes", 0.0)};
    return reading;
  }
};

// Steps that the payload amounts to; a server also sends the initial weights, which no step asks
// for.
double stepsOf(const Reading& reading, const Bytes& per_step, int direction) {
  return reading.payload[direction] / per_step[direction] - (direction == 1 ? 1 : 0);
}

bool agrees(const Reading& reading, const Bytes& per_step) {
  for (int d = 0; d < 2; ++d) {
    const double steps = stepsOf(reading, per_step, d);
    const double whole = std::round(steps);
    if (whole < 1 || std::abs(relative(steps, whole)) > kTolerance) return false;
    for (const double value :
         {reading.payload[d], reading.wire[d], reading.recorded[d], reading.recorded_wire[d]}) {
      if (!(std::abs(relative(value, reading.kernel[d])) <= kTolerance)) return false;
    }
  }
  return true;
}

void print(int ps, const Reading& reading, const Bytes& per_step) {
  for (int d = 0; d < 2; ++d) {
    const double kernel = reading.kernel[d];
    fmt::print(
        "ps-{} {:<3}  kernel {:>11.0f}  wire {:>11.0f} ({:+.3f} %)  payload {:>11.0f} ({:+.3f} %)  "
        "traffic.jsonl {:>11.0f} ({:+.3f} %)  plan {:.0f} a step x {:.3f} steps\n",
        ps, kDirections[d], kernel, reading.wire[d], 100 * relative(reading.wire[d], kernel),
        reading.payload[d], 100 * relative(reading.payload[d], kernel), reading.recorded_wire[d],
        100 * relative(reading.recorded_wire[d], kernel), per_step[d],
        stepsOf(reading, per_step, d));
  }
}

INSTANTIATE_TEST_SUITE_P(WireTypes, TrafficTest, testing::Values("Float32", "BFloat16"),
                         [](const auto& type) { return std::string(type.param); });

TEST_P(TrafficTest, PayloadAndWireAreWhatTheKernelCarried) {
  const std::string yaml = R"(apiVersion: trainyard.dev/v1alpha1
kind: TrainingJob
metadata: {name: wide}
spec:
  ps: {replicas: 2}
  worker: {replicas: 2}
  training:
    model: {name: mlp, hidden: [1024]}
    data: {format: synthetic, shape: [28, 28, 1], classes: 10, samples: 2000}
    batchSize: 8
    sharedMemory: Never  # of what passes through memory the kernel knows nothing
    steps: 40
    optimizer: {name: SGD, learningRate: 0.01}
)";
  const std::string wire = GetParam();
  JobRun run(folder("wide"), yaml, {"--set", "training.wireType=" + wire});
  const std::vector<Bytes> per_step = planned(run, wire);
  // What workers pull; what they push besides replicas.
  const std::vector<Bytes> wide = planned(run, "Float32");
  const double share = wire == "Float32" ? 1 : 0.5;
  for (int ps = 0; ps < kServers; ++ps) EXPECT_EQ(per_step[ps][1], share * wide[ps][1]);
  ASSERT_EQ(per_step.size(), static_cast<std::size_t>(kServers));
  for (const Bytes& bytes : per_step) {
    ASSERT_GT(bytes[0], 1e6);
    ASSERT_GT(bytes[1], 1e6);
  }
  // All workers compute for a while in each of these steps: nothing moves, and what the runtime,
  // the agent and the launcher say has time to arrive.
  run.launch("worker.compute=delay(6000)@10-20");
  ASSERT_TRUE(run.reaches("worker-0", 9));
  std::array<Reading, kServers> readings;
  const bool agreed = eventually(
      [&] {
        bool all = true;
        for (int ps = 0; ps < kServers; ++ps) {
          readings[ps] = read(run, ps);
          all = all && agrees(readings[ps], per_step[ps]);
        }
        return all;
      },
      std::chrono::seconds(60));
  for (int ps = 0; ps < kServers; ++ps) print(ps, readings[ps], per_step[ps]);
  EXPECT_TRUE(agreed) << "the last readings differ by more than 2 %";
  for (int ps = 0; ps < kServers; ++ps) {
    const Reading& reading = readings[ps];
    for (int d = 0; d < 2; ++d) {
      EXPECT_GT(reading.kernel[d], reading.payload[d]) << "framing has a size";
      EXPECT_GE(stepsOf(reading, per_step[ps], d), 9.5);
    }
  }
  ASSERT_TRUE(run.launcher().signal(SIGKILL).ok());
}

}  // namespace
}  // namespace trainyard
