#include "runtime/events/timeline.h"

#include <unistd.h>

#include <thread>
#include <vector>

#include "base/process/files.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// As its readers do, without the last comma and bracket.
json read(const std::filesystem::path& path) {
  std::string text = readFile(path, 64 << 20).value_or("");
  EXPECT_TRUE(text.ends_with(",\n")) << text;
  text.replace(text.size() - 2, 2, "]");
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

TEST(Timeline, HoldsTheSpansOfAllWorkers) {
  const TempDir dir;
  const auto path = dir.path() / "timeline.json";
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 4; ++worker) {
    workers.emplace_back([&, worker] {
      auto timeline = Timeline::open(path, worker, fmt::format("worker-{}", worker), systemClock());
      ASSERT_TRUE(timeline.ok()) << timeline.status();
      const TimePoint start = systemClock().now();
      for (int step = 0; step < 50; ++step) {
        (*timeline)->add({Lane::kTrainer, "compute", step, start, start + milliseconds(step)});
        (*timeline)->add({Lane::kExchange, "bucket 0", step, start, start + milliseconds(1)});
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  const json events = read(path);
  ASSERT_TRUE(events.is_array());
  std::map<int, int> spans;
  std::map<int, std::string> names;
  for (const json& event : events) {
    const int pid = event.at("pid");
    if (event.at("name") == "process_name") names[pid] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    ++spans[pid];
    EXPECT_GT(event.at("ts").get<std::int64_t>(), 0);
    if (event.at("name") == "compute") {
      EXPECT_EQ(event.at("dur").get<int>(), 1000 * event.at("args").at("step").get<int>());
    }
  }
  EXPECT_THAT(spans, testing::ElementsAre(std::pair(0, 100), std::pair(1, 100), std::pair(2, 100),
                                          std::pair(3, 100)));
  EXPECT_EQ(names[3], "worker-3");
  std::error_code ignored;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path(), ignored), {}), 1)
      << "nothing else is left";
}

TEST(Timeline, TheNextLifeGoesOnInTheSameFile) {
  const TempDir dir;
  const auto path = dir.path() / "timeline.json";
  for (int life = 0; life < 2; ++life) {
    auto timeline = Timeline::open(path, 1, "worker-1", systemClock());
    ASSERT_TRUE(timeline.ok()) << timeline.status();
    const TimePoint now = systemClock().now();
    (*timeline)->add({Lane::kTrainer, "wait", life, now, now});
  }
  std::vector<int> steps;
  for (const json& event : read(path)) {
    if (event.at("ph") == "X") steps.push_back(event.at("args").at("step"));
  }
  EXPECT_THAT(steps, testing::ElementsAre(0, 1));
}

// Containers that share a volume may have processes of one number.
TEST(Timeline, LeavesAloneWhatAnotherProcessOfOurNumberIsMaking) {
  const TempDir dir;
  const auto path = dir.path() / "timeline.json";
  const auto theirs = dir.path() / fmt::format("timeline.json.{}", ::getpid());
  ASSERT_TRUE(writeFileAtomically(theirs, "[\n").ok());
  ASSERT_TRUE(Timeline::open(path, 0, "worker-0", systemClock()).ok());
  EXPECT_EQ(readFile(theirs, 100).value_or("gone"), "[\n");
}

TEST(Timeline, NamesThePathThatCannotBeWritten) {
  const auto timeline = Timeline::open("/no/such/folder/timeline.json", 0, "a", systemClock());
  EXPECT_THAT(std::string(timeline.status().message()), testing::HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace trainyard::runtime
