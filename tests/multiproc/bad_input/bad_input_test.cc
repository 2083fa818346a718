// Wrong files, fields, flags, data, checkpoints and guests, through the programs as a user has
// them: table.txt says what is done and what must come of it.
#include <signal.h>

#include <chrono>
#include <cstdlib>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "tests/multiproc/bad_input/row_runner.h"
#include "tests/multiproc/run_fixture.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t kMaxText = 1 << 20;
constexpr int kImages = 40;

fs::path sourceFolder() {
  const char* source = std::getenv("TRAINYARD_SOURCE");
  return fs::path(source == nullptr ? "." : source) / "tests/multiproc/bad_input";
}

std::string sourceText(const std::string& name) {
  const auto text = readFile(sourceFolder() / name, kMaxText);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

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

// A csv file whose words and cities come again and again.
std::string clicksCsv(int count) {
  std::string lines = "user,words,city,age,click\n";
  for (int i = 0; i < count; ++i) {
    lines += fmt::format("{},{} {},{},{},{}\n", 100 + i, i % 7, i % 3, i % 2 == 0 ? "Oslo" : "Rome",
                         i / 10.0, i % 2);
  }
  return lines;
}

class BadInputTest : public RunTest {
 protected:
  void putProgramsIntoThePath() {
    runner_.setVariable("PATH", fs::path(programPath("trainyard")).parent_path().string() +
                                    ":/usr/sbin:/usr/bin:/sbin:/bin");
  }

  // What every row starts from: two jobs, their runs, data.
  void prepare() {
    const fs::path model = folder("model");
    for (const char* name : {"job.yaml", "data.yaml"}) {
      writeText(std::string("model/") + name, sourceText(name));
    }
    writeText("model/images.idx", idxImages(kImages, 0));
    writeText("model/labels.idx", idxLabels(kImages));
    const std::string job = (model / "job.yaml").string();
    const std::vector<std::string> run = {"trainyard", "run", "-f", job, "--dir"};
    std::vector<std::string> own = run, other = run;
    own.push_back((model / "run").string());
    other.insert(other.end(), {(model / "other").string(), "--set", "metadata.name=other", "--set",
                               "training.model.hidden=[16]"});
    for (const auto& argv : {own, other}) {
      const ProgramEnd end = program(argv);
      ASSERT_EQ(end.code, 0) << end.output;
    }
    putProgramsIntoThePath();
    for (const int step : {0, 150}) {
      const ProgramEnd end = program({"trainyard", "checkpoint", "digest", (model / "run").string(),
                                      "--step", std::to_string(step)});
      ASSERT_EQ(end.code, 0) << end.output;
      runner_.setDigest(step, end.lastLine());
      digest_ = end.lastLine();
    }
  }

  // Performs the rows that are for this moment.
  void perform(const std::vector<BadInputRow>& rows, bool beside_job) {
    for (const BadInputRow& row : rows) {
      if (row.beside_job != beside_job) continue;
      if (row.privileged && !privileged_) {
        report(row, "skipped", "no file system can be mounted here", 0);
        ++skipped_;
        continue;
      }
      const auto begin = std::chrono::steady_clock::now();
      RowAnswer answer;
      const std::vector<std::string> wrong = runner_.perform(row, &answer);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      report(row, wrong.empty() ? "ok" : "WRONG", join(wrong, "; "), took.count());
      if (wrong.empty()) ++right_;
      EXPECT_TRUE(wrong.empty()) << row.name << ": " << row.command << "\n" << join(wrong, "\n");
    }
  }

  bool canMount() const {
    return std::system("unshare -m mount -t tmpfs none /mnt 2>/dev/null") == 0;
  }
  void tell(std::size_t rows) const {
    fmt::print("{}{} rows: {} as written down, {} skipped\n", table_, rows, right_, skipped_);
  }
  void report(const BadInputRow& row, const std::string& how, const std::string& why,
              double seconds) {
    table_ += fmt::format("  {:7} {:52} exit {:3} {:6.2f} s  {}\n", how, row.name, row.exit_code,
                          seconds, why);
  }

  RowRunner runner_{root() / "model", folder("rows")};
  const bool privileged_ = canMount();
  std::string digest_;
  std::string table_;
  int right_ = 0;
  int skipped_ = 0;
};

TEST_F(BadInputTest, EachRowIsAsWrittenDown) {
  const auto rows = parseBadInputTable(sourceText("table.txt"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_GE(rows->size(), 40u);
  prepare();
  if (HasFatalFailure()) return;
  // A job that guests disturb while it runs. It goes on beside the other rows.
  JobRun live(folder("live"), sourceText("job.yaml"));
  live.launch("worker.compute=delay(150)");
  ASSERT_TRUE(live.reaches("worker-0", 1));
  const nlohmann::json ps = live.agent("ps-0");
  runner_.setVariable("LIVE", live.dir().string());
  for (const auto& [name, field] : std::map<std::string, std::string>{
           {"PORT", "taskPort"}, {"AGENT_PORT", "agentPort"}, {"METRICS_PORT", "metricsPort"}}) {
    runner_.setVariable(name, std::to_string(ps.value(field, 0)));
  }
  runner_.setVariable("LIFE", fmt::format("{}.{}", ps.value("created", 0), ps.value("start", 0)));
  perform(*rows, /*beside_job=*/true);
  const std::size_t then = live.positions("worker-0").size();
  EXPECT_LT(then, 150u) << "the job was to outlast its guests";
  perform(*rows, /*beside_job=*/false);
  const ProgramEnd end = live.wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(live.digest(), digest_) << "the guests changed what was learned";
  tell(rows->size());
}

TEST_F(BadInputTest, EachRowOfTablesIsAsWrittenDown) {
  auto rows = parseBadInputTable(sourceText("tables.txt"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_GE(rows->size(), 40u);
  for (BadInputRow& row : *rows) row.keeps = -1;  // there is no run before
  folder("model");
  writeText("model/clicks.yaml", sourceText("clicks.yaml"));
  writeText("model/clicks.csv", clicksCsv(40));
  putProgramsIntoThePath();
  perform(*rows, /*beside_job=*/false);
  tell(rows->size());
}

// The file changes while the job runs, and a worker that starts again reads the new one.
TEST_F(BadInputTest, AWorkerWithOtherDataIsRefusedByName) {
  const auto images = writeText("images.idx", idxImages(100, 0));
  const auto labels = writeText("labels.idx", idxLabels(100));
  JobRun run(folder("other"), smallJob(1, 2, 200),
             {"--set", fmt::format("training.data={{format: idx, images: '{}', labels: '{}'}}",
                                   images.string(), labels.string())});
  run.launch("worker.compute=delay(50)");
  ASSERT_TRUE(run.reaches("worker-1", 1));
  writeText("images.idx", idxImages(100, 9));
  ASSERT_NO_FATAL_FAILURE(killTask(run, "worker-1"));
  const ProgramEnd end = run.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_THAT(end.lastLine(), AllOf(StartsWith("result: failed reason="),
                                    HasSubstr("worker-1 has other data than worker-0")));
}

TEST(BadInputTable, WrongTablesAreRefused) {
  for (const char* text :
       {"do: x\n", "[a]\nrun: x\n", "[a]\nrun: x\nerror: (\n", "[a]\nrun: x\nexit: y\nerror: z\n",
        "[a]\nhop: x\n", "[a]\nrun: x\nerror: y\n[a]\nrun: x\nerror: y\n",
        "[a]\nrun: x\nerror: y\nresult: z\n"}) {
    EXPECT_FALSE(parseBadInputTable(text).ok()) << text;
  }
  const auto rows = parseBadInputTable(
      "# text\n[a b]\n  do: one\n  do: two: 2\n  run: x\n  exit: 3\n  says: y\n  keeps: nothing\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(rows->at(0).name, "a b");
  EXPECT_THAT(rows->at(0).preparation, testing::ElementsAre("one", "two: 2"));
  EXPECT_EQ(rows->at(0).exit_code, 3);
  EXPECT_EQ(rows->at(0).keeps, -1);
  EXPECT_EQ(rows->at(0).answer_in, AnswerIn::kSays);
}

}  // namespace
}  // namespace trainyard
