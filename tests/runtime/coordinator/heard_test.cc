// What the coordinator tells of those that take part, so that nobody else need ask them.
#include "gmock/gmock.h"
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> heard(const Bench& b) {
  std::vector<std::string> words;
  for (const v1::HeardTask& task : b.c.heard(b.now)) {
    words.push_back((task.id().role() == v1::ROLE_PS ? "ps-" : "worker-") +
                    std::to_string(task.id().index()) + " " + std::to_string(task.created()) + "." +
                    std::to_string(task.start()) + " revision " + std::to_string(task.revision()));
  }
  return words;
}

TEST(HeardTest, IsWhoHasComeAndSpokenLately) {
  Bench b(1, 2);
  EXPECT_THAT(heard(b), IsEmpty());
  b.say(b.ps());
  *b.worker(1).mutable_incarnation() = incarnation(2, 3);
  b.say(b.worker(1));
  EXPECT_THAT(heard(b), ElementsAre("ps-0 1.1 revision 1", "worker-1 2.3 revision 1"));
  b.now += std::chrono::seconds(60);
  b.worker(1).set_revision(2);
  b.say(b.worker(1));
  EXPECT_THAT(heard(b), ElementsAre("worker-1 2.3 revision 2"));
}

TEST(HeardTest, IsATaskForItsProcesses) {
  Bench b(1, 4, [](CoordinatorConfig& config) { config.processes_per_pod = 2; });
  for (auto& [key, report] : b.reports) b.say(report);
  EXPECT_THAT(heard(b), ElementsAre("ps-0 1.1 revision 1", "worker-0 1.1 revision 1",
                                    "worker-1 1.1 revision 1"));
}

}  // namespace
}  // namespace trainyard::runtime
