#include "agent/supervisor/agent_file.h"

#include "base/process/files.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/process/temp_dir.h"

namespace trainyard::agent {
namespace {

TEST(LastWords, AreThoseOfTheCoordinator) {
  v1::RuntimeReport report;
  EXPECT_EQ(lastWords(report), "");
  report.mutable_job()->set_step(200);
  report.mutable_job()->set_failure(std::string(9000, 'x'));
  const std::string text = lastWords(report);
  EXPECT_LT(text.size(), 4096u);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["jobProgress"]["step"], "200");
}

TEST(LastWords, ReplaceWhatTheFileHolds) {
  const TempDir dir;
  const auto path = dir.path() / "log";
  ASSERT_TRUE(writeFileAtomically(path, std::string(5000, 'y')).ok());
  v1::RuntimeReport report;
  ASSERT_TRUE(writeLastWords(path, report).ok());
  EXPECT_EQ(readFile(path, 9000)->size(), 5000u);  // nothing to say
  report.mutable_job()->set_outcome("succeeded");
  ASSERT_TRUE(writeLastWords(path, report).ok());
  EXPECT_EQ(*readFile(path, 9000), lastWords(report));
  EXPECT_FALSE(writeLastWords(dir.path() / "no" / "log", report).ok());
}

}  // namespace
}  // namespace trainyard::agent
