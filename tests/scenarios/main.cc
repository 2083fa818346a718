// Runs every scenario below cases/ as a test of its own. With TRAINYARD_UPDATE=1 in the environment
// the files are rewritten with what came out, instead of compared: read the difference before
// keeping it.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/core/log.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/scenarios/scenario.h"

namespace trainyard::control {
namespace {

namespace fs = std::filesystem;

std::string readFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class ScenarioTest : public testing::Test {
 public:
  ScenarioTest(fs::path path, bool update) : path_(std::move(path)), update_(update) {}
  void TestBody() override {
    Scenario scenario;
    const std::string expected = readFile(path_);
    const StatusOr<std::string> actual = rewrite(expected, &scenario);
    ASSERT_TRUE(actual.ok()) << path_ << ": " << actual.status();
    if (update_) {
      std::ofstream(path_, std::ios::binary) << *actual;
    } else {
      EXPECT_EQ(expected, *actual) << path_ << ": TRAINYARD_UPDATE=1 rewrites it";
    }
  }

 private:
  const fs::path path_;
  const bool update_;
};

// The rows "| A | B | C | ..." of a table below the heading, as "A | B | C" of `columns` cells.
std::set<std::string> rowsBelow(const std::string& text, const std::string& heading, int columns) {
  std::set<std::string> rows;
  std::stringstream lines(text.substr(std::min(text.size(), text.find(heading + "\n"))));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.starts_with("## ")) {
    if (!line.starts_with("| ") || line.starts_with("| type") || line.starts_with("| reason"))
      continue;
    std::size_t end = 0;
    for (int column = 0; column < columns; ++column) end = line.find(" |", end + 1);
    rows.insert(line.substr(2, end - 2));
  }
  return rows;
}

// docs/conditions.md and the scenarios tell the same: nothing is documented that never happens,
// nothing happens that is not documented.
class DocumentTest : public testing::Test {
 public:
  DocumentTest(std::vector<fs::path> cases, fs::path document)
      : cases_(std::move(cases)), document_(std::move(document)) {}
  void TestBody() override {
    std::set<std::string> conditions, events;
    for (const fs::path& path : cases_) {
      Scenario scenario;
      ASSERT_TRUE(rewrite(readFile(path), &scenario).ok()) << path;
      conditions.insert(scenario.conditions().begin(), scenario.conditions().end());
      events.insert(scenario.events().begin(), scenario.events().end());
    }
    const std::string text = readFile(document_);
    EXPECT_EQ(rowsBelow(text, "## Conditions", 3), conditions);
    EXPECT_EQ(rowsBelow(text, "## Events", 2), events);
  }

 private:
  const std::vector<fs::path> cases_;
  const fs::path document_;
};

void registerAll(const fs::path& source, bool update) {
  std::vector<fs::path> cases;
  for (const auto& entry : fs::directory_iterator(source / "tests/scenarios/cases")) {
    if (entry.path().extension() == ".txt") cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  for (const fs::path& path : cases) {
    testing::RegisterTest("Scenario", path.stem().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [path, update]() -> ScenarioTest* {
                            return std::make_unique<ScenarioTest>(path, update).release();
                          });
  }
  const fs::path document = source / "docs/conditions.md";
  testing::RegisterTest("ScenarioDocument", "ListsExactlyWhatHappens", nullptr, nullptr, __FILE__,
                        __LINE__, [cases, document]() -> DocumentTest* {
                          return std::make_unique<DocumentTest>(cases, document).release();
                        });
}

}  // namespace
}  // namespace trainyard::control

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  trainyard::configureLog({trainyard::LogFormat::kText, trainyard::LogLevel::kError, ""});
  const char* source = std::getenv("TRAINYARD_SOURCE");
  if (source == nullptr) {
    fmt::print(stderr, "TRAINYARD_SOURCE must name the root of the tree\n");
    return 2;
  }
  trainyard::control::registerAll(source, std::getenv("TRAINYARD_UPDATE") != nullptr);
  return RUN_ALL_TESTS();
}
