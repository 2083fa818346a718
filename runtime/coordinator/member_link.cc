#include "runtime/coordinator/member_link.h"

#include <algorithm>
#include <utility>

#include "base/core/failpoint.h"
#include "base/rpc/secure_channel.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

constexpr int kUnderWay = 2;
// Calls in a row that find a stranger before this member takes it for an answer: at a place that
// another job's server has taken a moment ago, the next membership names a better one.
constexpr int kDenials = 10;
constexpr char kStranger[] = "cannot prove to be of this job: it has another token";

void hitViewsFailpoint(const v1::View& view) {
  if (view.phase() == v1::PHASE_SEALING) hitFailpoint("member.seal", view.epoch().epoch());
  if (view.phase() == v1::PHASE_PREPARING) hitFailpoint("member.prepare", view.epoch().epoch());
  if (view.phase() == v1::PHASE_ACTIVE) hitFailpoint("member.begin", view.epoch().epoch());
}

}  // namespace

struct MemberLink::Call {
  std::uint64_t number = 0;
  std::shared_ptr<v1::Coordinator::Stub> stub;
  grpc::ClientContext context;
  v1::MemberReport report;
  v1::View view;
};

struct MemberLink::TakeCall {
  std::shared_ptr<v1::Coordinator::Stub> stub;
  grpc::ClientContext context;
  v1::TakeRequest request;
  v1::TakeReply reply;
  std::function<void(const grpc::Status&, const v1::TakeReply&)> answer;
};

MemberLink::MemberLink(Options options, const Clock& clock,
                       std::function<v1::MemberReport()> report,
                       std::function<void(const v1::View&)> view)
    : options_(std::move(options)),
      clock_(clock),
      report_(std::move(report)),
      view_(std::move(view)) {}

MemberLink::~MemberLink() {
  close();
}

void MemberLink::close() {
  stop();
  if (thread_.joinable()) thread_.join();
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return under_way_ == 0 && under_way_takes_ == 0; });
  lock.unlock();
  if (views_.joinable()) views_.join();
}

void MemberLink::setAddress(const std::string& address) {
  std::lock_guard lock(mutex_);
  if (address == address_) return;
  address_ = address;
  ChannelOptions options;
  options.own_connection = true;  // control never queues behind a chunk
  stub_ = v1::Coordinator::NewStub(
      openSecureChannel(address, options_.identity, kRuntimeServerName, options));
  poked_ = true;
  wake_.notify_all();
}

void MemberLink::start() {
  thread_ = std::thread([this] { run(); });
  views_ = std::thread([this] { takeViews(); });
}

void MemberLink::poke() {
  std::lock_guard lock(mutex_);
  poked_ = true;
  wake_.notify_all();
}

void MemberLink::stop() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

std::string MemberLink::problem() const {
  std::lock_guard lock(mutex_);
  return problem_;
}

bool MemberLink::flush(Duration limit) {
  std::unique_lock lock(mutex_);
  const std::uint64_t wanted = sent_ + 1;
  poked_ = true;
  wake_.notify_all();
  return wake_.wait_for(lock, limit, [&] { return taken_ >= wanted; });
}

void MemberLink::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const TimePoint now = clock_.now();
    if (stub_ != nullptr && wantsReport(now) && now >= not_before_) {
      send(lock);
      continue;
    }
    wake_.wait_for(lock, now < not_before_ ? not_before_ - now : options_.heartbeat);
  }
}

// With the mutex held. A report is best made of what the answer before it has said; one whose
// answer takes its time is followed by heartbeats.
bool MemberLink::wantsReport(TimePoint now) const {
  const int open = under_way_ + static_cast<int>(answers_.size());
  if (open == 0 || (poked_ && open < kUnderWay)) return true;
  return under_way_ == 0 && now >= sent_at_ + options_.heartbeat;
}

void MemberLink::send(std::unique_lock<std::mutex>& lock) {
  poked_ = false;
  sent_at_ = clock_.now();
  ++under_way_;
  auto* call = new Call;
  call->number = ++sent_;
  call->stub = stub_;
  // Two reports closer than this would only tell the same twice.
  not_before_ = sent_at_ + std::chrono::milliseconds(1);
  lock.unlock();
  call->report = report_();
  setDeadline(call->context, options_.heartbeat * 4);
  call->stub->async()->Sync(&call->context, &call->report, &call->view,
                            [this, call](const grpc::Status& status) { done(call, status); });
  lock.lock();
}

void MemberLink::take(const v1::TakeRequest& request,
                      std::function<void(const grpc::Status&, const v1::TakeReply&)> answer) {
  auto* call = new TakeCall;
  {
    std::lock_guard lock(mutex_);
    call->stub = stopping_ ? nullptr : stub_;
    if (call->stub != nullptr) ++under_way_takes_;
  }
  if (call->stub == nullptr) {
    delete call;
    return answer(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no coordinator"), {});
  }
  call->request = request;
  call->answer = std::move(answer);
  setDeadline(call->context, options_.heartbeat * 4);
  call->stub->async()->Take(&call->context, &call->request, &call->reply,
                            [this, call](const grpc::Status& status) {
                              call->answer(status, call->reply);
                              delete call;
                              std::lock_guard lock(mutex_);
                              --under_way_takes_;
                              wake_.notify_all();
                            });
}

// With the mutex held. Says so once, when there is nothing left to hope for.
void MemberLink::countDenial() {
  if (++denials_ != kDenials || heard_) return;
  Answer answer;
  answer.view.set_refusal(fmt::format("coordinator at {}: {}", address_, kStranger));
  answers_.push_back(std::move(answer));
}

void MemberLink::done(Call* call, const grpc::Status& status) {
  Answer answer{call->number, std::move(call->view)};
  delete call;  // before close() may hear that it has ended: it is part of gRPC's
  std::lock_guard lock(mutex_);
  --under_way_;
  const bool denied = isStranger(status);
  if (denied) {
    countDenial();
  } else {
    denials_ = 0;
  }
  if (status.ok()) {
    heard_ = true;
    problem_.clear();
    answers_.push_back(std::move(answer));
  } else {
    problem_ = fmt::format("coordinator at {}: {}", address_,
                           denied ? std::string(kStranger) : status.error_message());
    not_before_ = clock_.now() + options_.retry_delay;
  }
  wake_.notify_all();
}

// Until the last call that there will be has ended.
void MemberLink::takeViews() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return !answers_.empty() || (stopping_ && under_way_ == 0); });
    if (answers_.empty()) return;
    const Answer& answer = answers_.front();  // stays where it is while others come behind it
    lock.unlock();
    hitViewsFailpoint(answer.view);
    view_(answer.view);
    lock.lock();
    taken_ = std::max(taken_, answer.number);
    answers_.pop_front();
    wake_.notify_all();
  }
}

}  // namespace trainyard::runtime
