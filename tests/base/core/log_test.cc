#include "base/core/log.h"

#include <algorithm>

#include "base/core/log_context.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"

namespace trainyard {
namespace {

TEST(Log, JsonLinesNameTheTaskAndHowFarItIs) {
  configureLog({.format = LogFormat::kJson, .level = LogLevel::kInfo, .task = "worker-1"});
  setLogIdentity({"fashion", "worker", 1});
  testing::internal::CaptureStderr();
  TY_WARN("before the first {}", "epoch");
  setLogProgress(3, 120);
  TY_INFO("a \"quoted\" line\nwith a break, \xff no UTF-8");
  TY_DEBUG("not shown");
  const std::string text = testing::internal::GetCapturedStderr();
  const std::size_t cut = text.find('\n');
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;

  const auto first = nlohmann::json::parse(text.substr(0, cut));
  EXPECT_EQ(first["level"], "warning");
  EXPECT_EQ(first["message"], "before the first epoch");
  EXPECT_FALSE(first.contains("epoch"));
  EXPECT_FALSE(first.contains("step"));

  const auto second = nlohmann::json::parse(text.substr(cut));
  EXPECT_EQ(second["job"], "fashion");
  EXPECT_EQ(second["role"], "worker");
  EXPECT_EQ(second["index"], 1);
  EXPECT_EQ(second["task"], "worker-1");
  EXPECT_EQ(second["epoch"], 3);
  EXPECT_EQ(second["step"], 120);
  EXPECT_THAT(second["time"].get<std::string>(),
              testing::MatchesRegex("....-..-..T..:..:..\\....Z"));
}

}  // namespace
}  // namespace trainyard
