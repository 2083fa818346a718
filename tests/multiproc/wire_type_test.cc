// 16 bits between workers and parameter servers: half the bytes, and as deterministic as 32.
#include <fstream>

#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

std::vector<std::string> sets(const std::vector<std::string>& values) {
  std::vector<std::string> flags;
  for (const std::string& value : values) flags.insert(flags.end(), {"--set", value});
  return flags;
}

// All that the kernel carried to and from servers, both ways.
double wireBytes(const JobRun& run) {
  std::ifstream in(run.dir() / "traffic.jsonl");
  nlohmann::json last;
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) last = std::move(json);
  }
  double bytes = 0;
  for (const auto& ps : last.value("ps", nlohmann::json::array()))
    bytes += ps.value("wireReceivedBytes", 0.0) + ps.value("wireTransmittedBytes", 0.0);
  return bytes;
}

class WireTypeTest : public RunTest {
 protected:
  std::string digestOf(const std::string& name, int servers, const std::vector<std::string>& values,
                       const std::string& failpoints = "") {
    JobRun run(folder(name), smallJob(servers, 2, 120), sets(values));
    const ProgramEnd end = run.launchAndWait(failpoints);
    EXPECT_EQ(end.code, 0) << name << end.output;
    EXPECT_EQ(run.json("status.json")["status"].value("lostSteps", std::int64_t{0}), 0) << name;
    return end.code == 0 ? run.digest() : name + " failed";
  }
};

// Numbers are rounded one by one, so it does not matter how they are cut, which way they take or
// who is late; and between servers nothing is rounded, so a server that dies leaves no trace.
TEST_F(WireTypeTest, ADeterministicJobHasOneDigest) {
  const std::string wire = "training.wireType=BFloat16";
  const std::string want = digestOf("one", 1, {wire});
  EXPECT_EQ(digestOf("two", 2, {wire}, "worker.push=delay(4)@20-35,task=worker-0"), want);
  EXPECT_EQ(digestOf("tcp", 2, {wire, "training.sharedMemory=Never"}), want);
  EXPECT_EQ(digestOf("killed", 2, {wire}, "ps.request=crash@60,task=ps-1,life=1.1"), want);
  EXPECT_NE(digestOf("half", 2, {"training.wireType=Float16"}), want);
  EXPECT_NE(undisturbedDigest(smallJob(2, 2, 120)), want);
}

// Gradients that wait for the norm are summed as they come, in other memory.
TEST_F(WireTypeTest, SoHasOneThatClips) {
  const std::vector<std::string> clipped = {
      "training.wireType=BFloat16",
      "training.optimizer={name: SGD, learningRate: 0.1, clipNorm: 0.5}"};
  EXPECT_EQ(digestOf("one", 1, clipped), digestOf("two", 2, clipped));
}

// Too high a learning rate: the weights double and redouble until there is no such number.
TEST_F(WireTypeTest, WeightsBeyondFloat16EndTheJobByName) {
  JobRun run(
      folder("half"), smallJob(2, 2, 400),
      sets({"training.wireType=Float16", "training.optimizer={name: SGD, learningRate: 900}"}));
  const ProgramEnd end = run.launchAndWait();
  EXPECT_NE(end.code, 0);
  EXPECT_THAT(end.lastLine(), testing::AllOf(testing::HasSubstr("result: failed"),
                                             testing::HasSubstr("training.wireType Float16 ends")));
}

// A gradient of 3.2 MB, whose framing is a small part.
TEST_F(WireTypeTest, HalfTheBytesAreCarried) {
  const auto bytesOf = [&](const std::string& wire) {
    JobRun run(folder(wire), smallJob(2, 2, 30),
               sets({"training.model={name: mlp, hidden: [1024]}",
                     "training.data={format: synthetic, shape: [28, 28, 1], classes: 10, "
                     "samples: 2000}",
                     "training.wireType=" + wire, "training.chunkReplicas=Never",
                     "training.sharedMemory=Never"}));
    const ProgramEnd end = run.launchAndWait();
    EXPECT_EQ(end.code, 0) << end.output;
    return wireBytes(run);
  };
  const double wide = bytesOf("Float32");
  const double half = bytesOf("BFloat16");
  fmt::print("bytes on the wire: {:.0f} of 32 bits, {:.0f} of 16\n", wide, half);
  EXPECT_GT(wide, 2.0 * 2 * 30 * 3.2e6);
  EXPECT_NEAR(half / wide, 0.5, 0.01);
}

}  // namespace
}  // namespace trainyard
