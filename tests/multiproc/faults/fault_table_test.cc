// Every line of table.txt through the built programs: processes die, crash, freeze and hang at
// exact moments of a deterministic job. What comes of it is printed, and must be what is written
// down. FAULT_LINE in the environment picks a line of the file, or lines: 82-104.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <mutex>

#include "base/core/strings.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "tests/multiproc/faults/fault_run.h"
#include "tests/multiproc/faults/killed_run.h"
#include "tests/multiproc/side_by_side.h"

namespace trainyard {
namespace {

std::string tableText() {
  const char* source = std::getenv("TRAINYARD_SOURCE");
  const std::string path =
      fmt::format("{}/tests/multiproc/faults/table.txt", source == nullptr ? "." : source);
  return readFile(path, 1 << 20).value_or("");
}

std::string lineOf(const FaultCell& cell, const FaultResult& result) {
  return fmt::format(
      "{}{:15} {:11} {:32} {:7} {:10} from step {:3}  lost {:3}  restarts {}  digest {}  {:.1f} s: "
      "{}",
      cell.ring             ? "AllReduce "
      : cell.update.empty() ? ""
                            : cell.update + " ",
      cell.victim, cell.moment, cell.held + ":" + cell.place, cell.how, result.outcome,
      result.first_step, result.lost, result.restarts, result.digest_equal ? "equal" : "other",
      result.seconds, result.problem.empty() ? "as written down" : result.problem);
}

class FaultTable : public RunTest {
 protected:
  // The digest of the cell's job without faults; "" when it cannot be had.
  std::string undisturbed(const FaultCell& cell) {
    if (cell.update.empty()) return undisturbedDigest(faultJob(cell));
    FaultCell other = cell;
    other.ps = 2;
    other.update = "Async";
    return undisturbedDigest(faultJob(other), inCommonSteps());
  }
  void work(const FaultCell& cell, const std::string& digest) {
    const FaultResult result =
        FaultRun(folder(fmt::format("line-{}", cell.line)), cell, digest).run();
    std::lock_guard lock(mutex_);
    fmt::print("{}\n", lineOf(cell, result));
    (void)std::fflush(stdout);
    if (result.problem.empty()) {
      ++kept_;
    } else {
      problems_.push_back(fmt::format("table.txt:{}: {}", cell.line, lineOf(cell, result)));
    }
  }

  std::mutex mutex_;
  std::size_t kept_ = 0;
  std::vector<std::string> problems_;
};

TEST_F(FaultTable, EveryCellIsAsWrittenDown) {
  auto cells = parseFaultTable(tableText());
  ASSERT_TRUE(cells.ok()) << cells.status();
  ASSERT_GE(cells->size(), 35u);
  if (const char* only = std::getenv("FAULT_LINE")) {
    const auto [first, last] = splitFirst(only, '-');
    const int from = parseNumber<int>(first).value_or(0);
    const int to = last.empty() ? from : parseNumber<int>(last).value_or(0);
    std::erase_if(*cells, [&](const FaultCell& c) { return c.line < from || c.line > to; });
  }
  // What waits longest begins first, and those that hang need nothing of the machine meanwhile.
  std::ranges::stable_sort(*cells, std::greater(), &FaultCell::waits);
  const auto hang = std::ranges::count(*cells, 3, &FaultCell::waits);
  std::vector<std::string> digests;
  for (const FaultCell& cell : *cells) {
    digests.push_back(undisturbed(cell));
    ASSERT_NE(digests.back(), "") << "the undisturbed job did not succeed";
  }
  sideBySide(
      cells->size(), [&](std::size_t i) { work(cells->at(i), digests[i]); },
      kSideBySide + static_cast<int>(hang));
  fmt::print("{} cells: {} as written down\n", cells->size(), kept_);
  // Wrong results before waits that ran out: the first one says what the test failed of.
  std::stable_partition(problems_.begin(), problems_.end(), [](const std::string& problem) {
    return problem.find("timed out after") == std::string::npos;
  });
  for (const std::string& problem : problems_) ADD_FAILURE() << problem;
}

TEST(FaultTableFile, KnowsTheStrategy) {
  const auto cells = parseFaultTable(
      "ps-1 start ps-1:ps.prepare@0 kill from-seed 0 1 equal\n"
      "strategy AllReduce\n"
      "worker-1 start worker-1:worker.start@0 kill goes-on 0 1 equal\n");
  ASSERT_TRUE(cells.ok()) << cells.status();
  EXPECT_EQ(cells->at(0).coordinator(), "ps-0");
  EXPECT_EQ(cells->at(1).coordinator(), "worker-0");
}

TEST(FaultTableFile, NamesTheLineThatIsWrong) {
  const char* good = "ps-1 mid-step ps-1:ps.request@95 kill goes-back since-checkpoint 1 equal";
  EXPECT_TRUE(parseFaultTable(good).ok());
  for (const char* bad :
       {"ps-1 mid-step ps-1:ps.request@95 kill goes-back since-checkpoint 1",
        "ps-1 mid-step ps-1:ps.request kill goes-back since-checkpoint 1 equal",
        "ps-1 mid-step ps-0:ps.request@95 freeze goes-back since-checkpoint 1 equal",
        "ps-1 mid-step ps-1:ps.request@95 burn goes-back since-checkpoint 1 equal",
        "ps-1 mid-step ps-1:ps.request@95 kill resumes since-checkpoint 1 equal"}) {
    const auto cells = parseFaultTable(std::string("# heading\n") + bad);
    ASSERT_FALSE(cells.ok()) << bad;
    EXPECT_THAT(std::string(cells.status().message()), testing::HasSubstr("line 2"));
  }
}

}  // namespace
}  // namespace trainyard
