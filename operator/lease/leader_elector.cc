#include "operator/lease/leader_elector.h"

#include <utility>

#include "base/core/check.h"
#include "base/core/log.h"

namespace trainyard::control {

namespace {

constexpr Duration kReleaseDeadline = std::chrono::seconds(2);
// A request that gets no answer must leave time for another one.
constexpr int kAttemptsInDeadline = 3;

}  // namespace

LeaderElector::LeaderElector(LeaderOptions options, LeaseStore& store, const Clock& clock,
                             LeaderCallbacks callbacks)
    : options_(std::move(options)),
      store_(store),
      clock_(clock),
      callbacks_(std::move(callbacks)),
      machine_(options_) {}

LeaderElector::~LeaderElector() {
  stop();
}

Status LeaderElector::start() {
  TY_CHECK(!thread_.joinable(), "an elector is started once");
  TY_RETURN_IF_ERROR(validate(options_));
  thread_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested() && step(stop)) {
    }
  });
  return absl::OkStatus();
}

void LeaderElector::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  release();
}

bool LeaderElector::holds() const {
  const std::int64_t until = until_.load(std::memory_order_acquire);
  return until != 0 && clock_.now().time_since_epoch().count() < until;
}

TimePoint LeaderElector::holdsUntil() const {
  return TimePoint(Duration(until_.load(std::memory_order_acquire)));
}

bool LeaderElector::step(const std::stop_token& stop) {
  const TimePoint began = clock_.now();
  const UnixMillis unix_ms = clock_.unixMillis();
  const LeaderMachine::Action action = machine_.next(began, unix_ms);
  const Duration deadline = options_.renew_deadline / kAttemptsInDeadline;
  if (const auto* wait = std::get_if<LeaderMachine::Wait>(&action)) {
    std::unique_lock lock(mutex_);
    wake_.wait_until(lock, stop, wait->until, [] { return false; });
    return true;
  }
  if (const auto* lost = std::get_if<LeaderMachine::Lost>(&action)) {
    until_.store(0, std::memory_order_release);
    TY_ERROR("lease: {}", lost->why);
    if (announced_ && callbacks_.lost) callbacks_.lost(lost->why);
    return false;
  }
  StatusOr<LeaseRecord> result = absl::UnknownError("");
  if (std::holds_alternative<LeaderMachine::Read>(action)) {
    if (machine_.leadsUntil()) slow_paths_.fetch_add(1, std::memory_order_relaxed);
    result = store_.read(deadline);
    machine_.onRead(result, clock_.now());
  } else {
    const auto* create = std::get_if<LeaderMachine::Create>(&action);
    result = create ? store_.create(create->record, deadline)
                    : store_.update(std::get<LeaderMachine::Update>(action).record, deadline);
    machine_.onWritten(result, began, clock_.now());
  }
  if (!result.ok()) TY_INFO("lease: {}", std::string(result.status().message()));
  publish();
  return true;
}

void LeaderElector::publish() {
  const auto until = machine_.leadsUntil();
  until_.store(until ? until->time_since_epoch().count() : 0, std::memory_order_release);
  if (until && !announced_) {
    announced_ = true;
    if (callbacks_.started) callbacks_.started();
  }
  if (machine_.observedHolder() == leader_) return;
  leader_ = machine_.observedHolder();
  const bool other = !leader_.empty() && leader_ != options_.identity;
  if (other && callbacks_.new_leader) callbacks_.new_leader(leader_);
}

void LeaderElector::release() {
  const auto record = machine_.release(clock_.unixMillis());
  until_.store(0, std::memory_order_release);
  if (!record) return;
  const Status status = store_.update(*record, kReleaseDeadline).status();
  if (!status.ok()) TY_INFO("lease: not released: {}", std::string(status.message()));
}

}  // namespace trainyard::control
