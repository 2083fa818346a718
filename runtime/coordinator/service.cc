#include "runtime/coordinator/service.h"

#include <utility>

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/rpc/secure_channel.h"

namespace trainyard::runtime {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(50);

}  // namespace

template <typename Reply>
class CoordinatorService::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(CoordinatorService& service, std::uint64_t ticket, Reply* reply)
      : service_(service), ticket_(ticket), reply_(reply) {}
  std::uint64_t ticket() const { return ticket_; }
  void answer(const Reply& reply) {
    *reply_ = reply;
    Finish(grpc::Status::OK);
  }
  void OnCancel() override {
    if (service_.take<Reply>(ticket_) != nullptr) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  CoordinatorService& service_;
  const std::uint64_t ticket_;
  Reply* const reply_;
};

template <>
CoordinatorService::Calls<v1::View>& CoordinatorService::calls() {
  return reports_;
}

template <>
CoordinatorService::Calls<v1::TakeReply>& CoordinatorService::calls() {
  return takes_;
}

CoordinatorService::CoordinatorService(Options options, Coordinator coordinator, const Clock& clock)
    : options_(std::move(options)), clock_(clock), coordinator_(std::move(coordinator)) {
  ticker_ = std::thread([this] { tick(); });
}

CoordinatorService::~CoordinatorService() {
  stop();
}

void CoordinatorService::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    wake_.notify_all();
  }
  ticker_.join();
  files_.finish();
  const grpc::Status ending(grpc::StatusCode::UNAVAILABLE, "the coordinator is ending");
  Calls<v1::View> reports;
  Calls<v1::TakeReply> takes;
  {
    std::lock_guard lock(mutex_);
    reports.swap(reports_);
    takes.swap(takes_);
  }
  for (auto& [ticket, call] : reports) call->Finish(ending);
  for (auto& [ticket, call] : takes) call->Finish(ending);
}

template <typename Reply>
CoordinatorService::Call<Reply>* CoordinatorService::take(std::uint64_t ticket) {
  std::lock_guard lock(mutex_);
  const auto it = calls<Reply>().find(ticket);
  return it == calls<Reply>().end() ? nullptr : calls<Reply>().extract(it).mapped();
}

// Hands an event to the state machine and carries out what it asks for, outside the lock.
template <typename Event>
void CoordinatorService::handle(Event event) {
  std::vector<CoordinatorAction> actions;
  {
    std::lock_guard lock(mutex_);
    event(coordinator_, clock_.now());
    actions = coordinator_.takeActions();
  }
  execute(std::move(actions));
}

void CoordinatorService::execute(std::vector<CoordinatorAction> actions) {
  for (CoordinatorAction& action : actions) {
    if (auto* reply = std::get_if<ReplyAction>(&action)) {
      if (auto* call = take<v1::View>(reply->ticket)) call->answer(reply->view);
    } else if (auto* taken = std::get_if<TakeReplyAction>(&action)) {
      if (auto* call = take<v1::TakeReply>(taken->call)) call->answer(taken->reply);
    } else if (auto* log = std::get_if<LogAction>(&action)) {
      logLine(log->warning ? LogLevel::kWarning : LogLevel::kInfo, log->text);
    } else if (auto* evaluation = std::get_if<EvaluationAction>(&action)) {
      hitFailpoint("coordinator.evaluated", evaluation->evaluation.version());
      if (options_.evaluated) options_.evaluated(evaluation->evaluation);
    } else if (auto* commit = std::get_if<CommitAction>(&action)) {
      files_.add([this, manifest = std::move(commit->manifest)] { this->commit(manifest); });
    } else if (auto* done = std::get_if<FinishAction>(&action)) {
      files_.add([this, end = *done] { finish(end); });
    }
  }
}

void CoordinatorService::finish(const FinishAction& end) {
  hitFailpoint("coordinator.finish", end.steps);
  Status status = holdClaim();
  if (status.ok()) status = options_.finish(end);
  handle([&](Coordinator& c, TimePoint now) { c.onFinishRecorded(status, now); });
}

// Keeps the call until the state machine answers it; `event` hands it over.
template <typename Reply, typename Event>
grpc::ServerUnaryReactor* CoordinatorService::serve(grpc::CallbackServerContext* context,
                                                    Reply* reply, Event event) {
  Call<Reply>* call = nullptr;
  std::uint64_t ticket = 0;
  {
    std::lock_guard lock(mutex_);
    ticket = next_ticket_++;
    call = new Call<Reply>(*this, ticket, reply);
    calls<Reply>().emplace(ticket, call);
  }
  grpc::Status refused = checkPeer(*context);
  if (refused.ok() && stopped()) {
    refused = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator is ending");
  }
  if (!refused.ok()) {
    if (take<Reply>(ticket) != nullptr) call->Finish(refused);
    return call;
  }
  handle([&](Coordinator& c, TimePoint now) { event(c, ticket, now); });
  return call;
}

grpc::ServerUnaryReactor* CoordinatorService::Sync(grpc::CallbackServerContext* context,
                                                   const v1::MemberReport* report, v1::View* view) {
  return serve(context, view, [&](Coordinator& c, std::uint64_t ticket, TimePoint now) {
    c.onReport(*report, ticket, now);
  });
}

grpc::ServerUnaryReactor* CoordinatorService::Take(grpc::CallbackServerContext* context,
                                                   const v1::TakeRequest* request,
                                                   v1::TakeReply* reply) {
  return serve(context, reply, [&](Coordinator& c, std::uint64_t ticket, TimePoint now) {
    c.onTake(*request, ticket, now);
  });
}

bool CoordinatorService::stopped() const {
  std::lock_guard lock(mutex_);
  return stopping_;
}

void CoordinatorService::setMembership(const v1::Membership& membership) {
  handle([&](Coordinator& c, TimePoint now) {
    c.setMembership(membership, now);
    c.onTick(now);
  });
}

void CoordinatorService::requestStop(std::optional<Duration> within) {
  handle([&](Coordinator& c, TimePoint now) { c.requestStop(now, within); });
}

void CoordinatorService::follow(const v1::RuntimeDirective& directive) {
  if (!directive.stop_job()) return;
  std::optional<Duration> within;
  if (directive.has_stop_seconds()) within = fromSeconds(directive.stop_seconds());
  requestStop(within);
}

void CoordinatorService::measure(v1::Measurements& measured) const {
  std::lock_guard lock(mutex_);
  coordinator_.measure(measured);
}

void CoordinatorService::fill(v1::RuntimeReport& report) const {
  std::lock_guard lock(mutex_);
  const TimePoint now = clock_.now();
  *report.mutable_job() = coordinator_.progress(now);
  report.clear_heard();
  for (v1::HeardTask& task : coordinator_.heard(now)) *report.add_heard() = std::move(task);
}

bool CoordinatorService::finished() const {
  std::lock_guard lock(mutex_);
  return coordinator_.finished(clock_.now());
}

v1::Phase CoordinatorService::phase() const {
  std::lock_guard lock(mutex_);
  return coordinator_.phase();
}

std::string CoordinatorService::failure() const {
  std::lock_guard lock(mutex_);
  return coordinator_.failure();
}

void CoordinatorService::commit(Manifest manifest) {
  v1::DataFingerprint data;
  {
    std::lock_guard lock(mutex_);
    data = coordinator_.data();
  }
  options_.complete(manifest, data);
  manifest.unix_ms = clock_.unixMillis();
  hitFailpoint("coordinator.commit", manifest.step);
  const Status status = commitAndPrune(manifest);
  hitFailpoint("coordinator.committed", manifest.step);
  handle([&](Coordinator& c, TimePoint now) { c.onCommitted(manifest, status, now); });
}

// The claim is looked at again before anything is removed: who has begun in this coordinator's
// place since has seen the new manifest or not, and needs the one before it then.
Status CoordinatorService::commitAndPrune(Manifest& manifest) {
  TY_RETURN_IF_ERROR(holdClaim());
  if (options_.claim != nullptr) manifest.writer = options_.claim->number();
  TY_RETURN_IF_ERROR(commitManifest(options_.checkpoint_dir, manifest));
  TY_RETURN_IF_ERROR(holdClaim());
  if (Status pruned = prune(options_.checkpoint_dir, options_.keep); !pruned.ok()) {
    TY_WARN("old checkpoints stay: {}", pruned.ToString());
  }
  return absl::OkStatus();
}

Status CoordinatorService::holdClaim() {
  if (options_.claim == nullptr) return absl::OkStatus();
  const Status held = options_.claim->hold();
  if (absl::IsAborted(held) && options_.displaced) options_.displaced(held);
  return held;
}

void CoordinatorService::watchClaim(TimePoint now) {
  if (options_.claim == nullptr || now < claim_seen_ + options_.claim_every ||
      looks_.exchange(true))
    return;
  claim_seen_ = now;
  files_.add([this] {
    static_cast<void>(holdClaim());  // a disk that fails says so when something is to be written
    looks_ = false;
  });
}

void CoordinatorService::tick() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, kTick, [&] { return stopping_; })) return;
    }
    handle([](Coordinator& c, TimePoint now) { c.onTick(now); });
    watchClaim(clock_.now());
  }
}

}  // namespace trainyard::runtime
