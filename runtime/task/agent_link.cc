#include "runtime/task/agent_link.h"

#include "base/rpc/channel.h"
#include "base/rpc/token.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(500);
constexpr Duration kCallLimit = std::chrono::seconds(2);
// An agent on a machine that has too much to do may not come to answer in that time.
constexpr int kLastAttempts = 5;

}  // namespace

AgentLink::AgentLink(std::string target, std::string token,
                     std::function<v1::RuntimeReport()> report,
                     std::function<void(const v1::RuntimeDirective&)> directive,
                     std::function<v1::Measurements()> measured, LocalAgent local)
    : token_(std::move(token)),
      report_(std::move(report)),
      directive_(std::move(directive)),
      measured_(std::move(measured)),
      local_(std::move(local)) {
  if (target.empty()) return;
  const auto channel = openChannel(target);
  stub_ = v1::TaskReport::NewStub(channel);
  measurements_ = v1::TaskMeasurements::NewStub(channel);
}

AgentLink::~AgentLink() {
  stop();
}

void AgentLink::start() {
  if (stub_ != nullptr || local_) thread_ = std::thread([this] { run(); });
}

void AgentLink::poke() {
  std::lock_guard lock(mutex_);
  poked_ = true;
  wake_.notify_all();
}

void AgentLink::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool AgentLink::sendOnce() {
  if (local_) {
    directive_(local_(report_()));
    return true;
  }
  grpc::ClientContext context;
  addToken(context, token_);
  setDeadline(context, kCallLimit);
  v1::RuntimeDirective directive;
  const v1::RuntimeReport report = report_();
  const grpc::Status told = stub_->Report(&context, report, &directive);
  if (told.ok()) directive_(directive);
  grpc::ClientContext second;
  addToken(second, token_);
  setDeadline(second, kCallLimit);
  v1::RecordReply reply;
  (void)measurements_->Record(&second, measured_(), &reply);
  return told.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
}

// A lost report changes nothing, for the next one says all of it again; but the last has no next.
void AgentLink::run() {
  for (;;) {
    (void)sendOnce();
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kInterval, [&] { return poked_ || stopping_; });
    poked_ = false;
    if (stopping_) break;
  }
  for (int attempt = 0; attempt < kLastAttempts && !sendOnce(); ++attempt) {
  }
}

}  // namespace trainyard::runtime
