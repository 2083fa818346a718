#include "runtime/coordinator/member_link.h"

#include <algorithm>

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
  return wake_.wait_for(lock, limit, [&] { return answered_ >= wanted; });
}

void MemberLink::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const TimePoint now = clock_.now();
    const bool wanted = poked_ ? under_way_ < kUnderWay : under_way_ == 0;
    if (stub_ != nullptr && wanted && now >= not_before_) {
      send(lock);
      continue;
    }
    wake_.wait_for(lock, now < not_before_ ? not_before_ - now : options_.heartbeat);
  }
}

void MemberLink::send(std::unique_lock<std::mutex>& lock) {
  poked_ = false;
  ++under_way_;
  auto* call = new Call;
  call->number = ++sent_;
  call->stub = stub_;
  // Two reports closer than this would only tell the same twice.
  not_before_ = clock_.now() + std::chrono::milliseconds(1);
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

// True once, when there is nothing left to hope for.
bool MemberLink::countDenial() {
  std::lock_guard lock(mutex_);
  return ++denials_ == kDenials && answered_ == 0;
}

v1::View MemberLink::denial() const {
  std::lock_guard lock(mutex_);
  v1::View view;
  view.set_refusal(fmt::format("coordinator at {}: {}", address_, kStranger));
  return view;
}

void MemberLink::done(Call* call, const grpc::Status& status) {
  if (status.ok()) {
    hitViewsFailpoint(call->view);
    view_(call->view);
  }
  const std::uint64_t number = call->number;
  delete call;
  const bool denied = isStranger(status);
  if (denied && countDenial()) view_(denial());
  std::lock_guard lock(mutex_);
  --under_way_;
  if (!denied) denials_ = 0;
  if (status.ok()) {
    answered_ = std::max(answered_, number);
    problem_.clear();
  } else {
    problem_ = fmt::format("coordinator at {}: {}", address_,
                           denied ? std::string(kStranger) : status.error_message());
    not_before_ = clock_.now() + options_.retry_delay;
  }
  wake_.notify_all();
}

}  // namespace trainyard::runtime
