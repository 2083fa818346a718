#include "runtime/task/agent_link.h"

#include <atomic>

#include "base/rpc/channel.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

// Has no time for the first report after `busy` was set.
class BusyAgent final : public v1::TaskReport::Service {
 public:
  grpc::Status Report(grpc::ServerContext* context, const v1::RuntimeReport* report,
                      v1::RuntimeDirective*) override {
    if (busy.exchange(false)) {
      while (!context->IsCancelled()) std::this_thread::yield();
      return grpc::Status::CANCELLED;
    }
    heard = report->step();
    return grpc::Status::OK;
  }
  std::atomic<bool> busy = false;
  std::atomic<std::int64_t> heard = -1;
};

TEST(AgentLink, TheLastReportIsSentUntilTheAgentHasIt) {
  const TempDir dir;
  BusyAgent agent;
  grpc::ServerBuilder builder;
  const std::string target = unixTarget((dir.path() / "report.sock").native());
  builder.AddListeningPort(target, grpc::InsecureServerCredentials());
  builder.RegisterService(&agent);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  std::atomic<std::int64_t> step = 1;
  AgentLink link(
      target, "token",
      [&] {
        v1::RuntimeReport report;
        report.set_step(step);
        return report;
      },
      [](const v1::RuntimeDirective&) {}, [] { return v1::Measurements(); });
  link.start();
  while (agent.heard != 1) std::this_thread::yield();
  step = 2;
  agent.busy = true;
  link.stop();
  EXPECT_EQ(agent.heard, 2);
}

}  // namespace
}  // namespace trainyard::runtime
