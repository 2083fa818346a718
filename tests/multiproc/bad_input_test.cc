// Wrong files, fields, flags and data through the programs as a user has them: the exit code, one
// line that names the place, and nobody left.
#include <signal.h>

#include <sstream>

#include "base/process/files.h"
#include "fmt/format.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct Row {
  const char* name;
  std::vector<std::string> sets;
  std::vector<std::string> words;  // all in one line
};

void append32(std::string& out, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(value >> shift & 0xff);
}

// IDX files as they are published: magic, counts, bytes.
std::string idxImages(std::uint32_t count, std::uint8_t shade) {
  std::string bytes;
  for (const std::uint32_t number : {0x803u, count, 28u, 28u}) append32(bytes, number);
  for (std::uint32_t i = 0; i < count * 28 * 28; ++i) bytes += static_cast<char>(shade + i % 7);
  return bytes;
}
std::string idxLabels(std::uint32_t count) {
  std::string bytes;
  for (const std::uint32_t number : {0x801u, count}) append32(bytes, number);
  for (std::uint32_t i = 0; i < count; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) result.push_back(line);
  return result;
}

std::string flowData(const std::filesystem::path& images, const std::filesystem::path& labels) {
  return fmt::format("training.data={{format: idx, images: '{}', labels: '{}'}}", images.string(),
                     labels.string());
}

class BadInputTest : public RunTest {
 protected:
  std::vector<std::string> runArgv(const std::vector<std::string>& sets) {
    const auto job = writeText("job.yaml", smallJob(1, 2, 30));
    std::vector<std::string> argv = {"trainyard",  "run",   "-f",
                                     job.string(), "--dir", (root() / "run").string()};
    for (const std::string& set : sets) argv.insert(argv.end(), {"--set", set});
    return argv;
  }
  // Refused before anything was started: one line, code 2.
  void expectRefused(const std::vector<std::string>& argv, const std::vector<std::string>& words) {
    const ProgramEnd end = program(argv);
    EXPECT_EQ(end.code, 2) << end.output;
    ASSERT_EQ(lines(end.output).size(), 1u) << end.output;
    for (const std::string& word : words) EXPECT_THAT(end.output, HasSubstr(word));
  }
  // Found by a task: the result says it, code 1.
  void expectFailed(const std::vector<std::string>& argv, const std::vector<std::string>& words) {
    const ProgramEnd end = program(argv);
    EXPECT_EQ(end.code, 1) << end.output;
    EXPECT_THAT(end.lastLine(), StartsWith("result: failed reason="));
    for (const std::string& word : words) EXPECT_THAT(end.lastLine(), HasSubstr(word));
    EXPECT_TRUE(processesWith(root().string()).empty());
  }
};

TEST_F(BadInputTest, FieldsAreNamedBeforeAnythingStarts) {
  const std::vector<Row> rows = {
      {"unknown field", {"training.bathSize=3"}, {"bathSize"}},
      {"out of range", {"worker.replicas=-1"}, {"spec.worker.replicas", "-1"}},
      {"wrong type", {"training.steps=many"}, {"spec.training.steps", "many"}},
      {"unknown value", {"training.optimizer.name=Lion"}, {"spec.training.optimizer.name", "Lion"}},
      {"unknown model", {"training.model.name=resnet"}, {"spec.training.model.name", "resnet"}},
      {"AllReduce", {"strategy=AllReduce", "ps=null"}, {"strategy", "not in this release"}},
      {"Async", {"training.update.mode=Async"}, {"update.mode", "not in this release"}},
      {"vgg19",
       {"training.model={name: vgg19}",
        "training.data={format: synthetic, shape: [224, 224, 3], classes: 1000, samples: 100}"},
       {"training.model.name", "vgg19", "not in this release"}},
      {"suspended", {"runPolicy.suspend=true"}, {"spec.runPolicy.suspend"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    expectRefused(runArgv(row.sets), row.words);
  }
  EXPECT_FALSE(std::filesystem::exists(root() / "run")) << "nothing was begun";
}

TEST_F(BadInputTest, FilesFlagsAndVerbsAreNamed) {
  const ProgramEnd verb = program({"trainyard", "frobnicate"});
  EXPECT_EQ(verb.code, 2);
  EXPECT_EQ(lines(verb.output).at(0), "trainyard: there is no command \"frobnicate\"");
  expectRefused({"trainyard", "run", "-f", (root() / "absent.yaml").string()},
                {"absent.yaml", "No such file"});
  const auto broken = writeText("broken.yaml", "apiVersion: trainyard.dev/v1alpha1\nspec: [\n");
  expectRefused({"trainyard", "run", "-f", broken.string()}, {"broken.yaml:"});
  std::vector<std::string> volume = runArgv({});
  volume.insert(volume.end(), {"--volume", "data=/nowhere"});
  expectRefused(volume, {"--volume data=/nowhere", "no volume 'data'"});
}

TEST_F(BadInputTest, DirectoriesOfOthersAreLeftAlone) {
  const auto dir = folder("run");
  const auto photo = writeText("run/photo.png", "precious");
  expectRefused(runArgv({}), {"photo.png", "--dir"});
  EXPECT_EQ(readFile(photo, 100).value_or(""), "precious");
  std::filesystem::remove(photo);
  const auto lock = FileLock::acquire(dir / "lock");
  ASSERT_TRUE(lock.ok());
  expectRefused(runArgv({}), {"another run uses the directory"});
}

TEST_F(BadInputTest, AChangedJobIsRefusedInItsDirectory) {
  const ProgramEnd end = program(runArgv({}));
  ASSERT_EQ(end.code, 0) << end.output;
  expectRefused(runArgv({"training.model.hidden=[64]"}), {"training.model.hidden", "[32]", "[64]"});
  expectRefused(runArgv({"training.data.samples=2000"}), {"training.data.samples", "3000", "2000"});
  expectRefused(runArgv({"training.steps=20"}), {"training.steps", "may only grow"});
}

TEST_F(BadInputTest, DataFilesAreNamed) {
  const auto images = writeText("images.idx", idxImages(100, 0));
  const auto labels = writeText("labels.idx", idxLabels(100));
  const auto few = writeText("few.idx", idxLabels(99));
  const auto cut = writeText("cut.idx", idxImages(100, 0).substr(0, 5000));
  const auto absent = root() / "absent.idx";
  const std::vector<Row> rows = {
      {"absent", {flowData(absent, labels)}, {"data.images", "absent.idx", "No such file"}},
      {"truncated",
       {flowData(cut, labels)},
       {"data.images", "cut.idx", "truncated", "expected 78400"}},
      {"counts", {flowData(images, few)}, {"few.idx", "99", "100"}},
      {"not images", {flowData(labels, labels)}, {"data.images", "labels.idx", "magic"}},
      {"batch",
       {flowData(images, labels), "training.batchSize=101"},
       {"training.batchSize", "101", "100"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    std::vector<std::string> argv = runArgv(row.sets);
    argv.push_back("--new");
    expectFailed(argv, row.words);
  }
}

// The file changes while the job runs, and a worker that starts again reads the new one.
TEST_F(BadInputTest, AWorkerWithOtherDataIsRefusedByName) {
  const auto images = writeText("images.idx", idxImages(100, 0));
  const auto labels = writeText("labels.idx", idxLabels(100));
  JobRun run(folder("other"), smallJob(1, 2, 200), {"--set", flowData(images, labels)});
  run.launch("worker.compute=delay(50)");
  ASSERT_TRUE(run.reaches("worker-1", 1));
  writeText("images.idx", idxImages(100, 9));
  ASSERT_EQ(::kill(run.runtimePid("worker-1"), SIGKILL), 0);
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), AllOf(StartsWith("result: failed reason="),
                                    HasSubstr("worker-1 has other data than worker-0")));
}

}  // namespace
}  // namespace trainyard
