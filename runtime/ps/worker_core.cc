#include "runtime/ps/worker_core.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/coordinator/epoch_plan.h"
#include "runtime/ps/async_worker.h"
#include "runtime/ps/sync_worker.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::size_t kMaxUnseenParts = 16;

bool newer(const v1::View& a, const v1::View& b) {
  const auto key = [](const v1::View& v) {
    return std::tuple(v.coordinator().created(), v.coordinator().start(), v.sequence());
  };
  return key(a) > key(b);
}

}  // namespace

std::unique_ptr<WorkerMachine> makeWorkerMachine(WorkerConfig config) {
  if (config.asynchronous) return std::make_unique<AsyncWorker>(std::move(config));
  return std::make_unique<SyncWorker>(std::move(config));
}

WorkerCore::WorkerCore(WorkerConfig config)
    : config_(std::move(config)),
      transfer_(config_.ps_of_chunk, config_.window, config_.window_until_answer) {}

bool WorkerCore::active() const {
  return has_view_ && epoch_.epoch() == view_.epoch().epoch() && sealed_ <= epoch_.epoch() &&
         (view_.phase() == v1::PHASE_ACTIVE || view_.phase() == v1::PHASE_STOPPING);
}

bool WorkerCore::over() const {
  return has_view_ && (view_.phase() == v1::PHASE_DONE || view_.phase() == v1::PHASE_STOPPED ||
                       view_.phase() == v1::PHASE_FAILED || view_.left());
}

bool WorkerCore::takeView(const v1::View& view) {
  if (has_view_ && !newer(view, view_)) return false;
  const v1::Phase before = has_view_ ? view_.phase() : v1::PHASE_UNSPECIFIED;
  const bool was_over = over();
  if (view.hold() != view_.hold()) urgent_ = true;
  view_ = view;
  has_view_ = true;
  while (!parts_.empty() && view.evaluation().samples() > 0 &&
         parts_.front().version() <= view.evaluation().version()) {
    parts_.pop_front();
  }
  if (view.epoch().epoch() > sealed_) {
    sealed_ = view.epoch().epoch();
    urgent_ = true;
    dropAsk();  // an answer that comes from now on was not reported, and does not count
  }
  if (view.phase() != before && (stopping() || over())) urgent_ = true;
  if (over() && !was_over) urgent_ = true;
  return true;
}

void WorkerCore::enterEpoch(const v1::View& view) {
  epoch_ = view.epoch();
  plan_ = planOf(epoch_);
  rank_ = -1;
  servers_.clear();
  for (const v1::EpochMember& member : epoch_.members()) {
    if (member.id().role() == v1::ROLE_WORKER) {
      if (member.id().index() == config_.index) rank_ = static_cast<int>(member.rank());
    } else {
      servers_.resize(std::max<std::size_t>(servers_.size(), member.id().index() + 1));
      servers_[member.id().index()] = member.incarnation();
    }
  }
  transfer_.forgetSent();
  asked_ = 0;
  dropAsk();
}

StatusOr<std::optional<Turn>> WorkerCore::endTurn() const {
  if (!has_view_) return std::optional<Turn>();
  if (!view_.refusal().empty())
    return withClass(absl::InvalidArgumentError(view_.refusal()), FailureClass::kPermanent);
  if (view_.phase() == v1::PHASE_FAILED && !view_.left())
    return absl::FailedPreconditionError(view_.failure());
  if (!over()) return std::optional<Turn>();
  Turn turn;
  turn.epoch = epoch_.epoch();
  turn.kind = view_.phase() == v1::PHASE_DONE ? Turn::Kind::kDone : Turn::Kind::kStopped;
  if (view_.left()) turn.kind = Turn::Kind::kLeft;
  turn.step = view_.progress();
  return std::optional<Turn>(turn);
}

std::vector<Send> WorkerCore::sendsOf(TimePoint now) {
  std::vector<Send> sends;
  for (const ChunkTransfer::Sent& sent : transfer_.take(now, servers_.size())) {
    Send send;
    send.chunk = sent.chunk;
    send.ps = transfer_.serverOf(sent.chunk);
    send.attempt = sent.attempt;
    send.header.set_protocol(1);
    send.header.set_job_uid(config_.job_uid);
    send.header.set_epoch(epoch_.epoch());
    *send.header.mutable_server() = servers_[static_cast<std::size_t>(send.ps)];
    send.header.set_worker(config_.index);
    *send.header.mutable_worker_incarnation() = config_.self;
    send.header.set_rank(static_cast<std::uint32_t>(rank_));
    send.header.set_chunk(sent.chunk);
    send.header.set_receipt(transfer_.wantsReceipt(send.ps));
    sends.push_back(std::move(send));
  }
  return sends;
}

void WorkerCore::onReceived(std::uint32_t chunk, std::uint64_t attempt) {
  transfer_.onReceived(chunk, attempt);
}

void WorkerCore::sendAgain(std::uint32_t chunk, std::int64_t step, const Status& transport,
                           const v1::ChunkReplyHeader& header, TimePoint now) {
  last_problem_ = fmt::format("ps-{} step {} chunk {}: {}", transfer_.serverOf(chunk), step, chunk,
                              transport.ok() ? header.message() : fromAbsl(transport.message()));
  // NOT_READY was already waited for; everything else may pass: a server that starts again, a view
  // that this worker or the server has not seen yet.
  const bool at_once = transport.ok() && header.code() == v1::CHUNK_NOT_READY;
  transfer_.again(chunk, at_once ? TimePoint{} : now + config_.retry_delay);
}

void WorkerCore::ask(v1::TakeRequest request) {
  request.set_job_uid(config_.job_uid);
  request.mutable_id()->set_role(v1::ROLE_WORKER);
  request.mutable_id()->set_index(config_.index);
  *request.mutable_incarnation() = config_.self;
  request.set_epoch(epoch_.epoch());
  request.set_sequence(++asked_);
  ask_ = std::move(request);
  ask_sent_ = false;
  ask_not_before_ = TimePoint{};
}

std::optional<v1::TakeRequest> WorkerCore::takeAsk(TimePoint now) {
  if (!ask_ || ask_sent_ || ask_not_before_ > now || !active()) return std::nullopt;
  ask_sent_ = true;
  return ask_;
}

bool WorkerCore::closeAsk(const v1::TakeRequest& request, const Status& transport,
                          const v1::TakeReply& reply, TimePoint now) {
  if (!ask_ || !ask_sent_ || request.epoch() != ask_->epoch() ||
      request.sequence() != ask_->sequence()) {
    return false;
  }
  const bool wait = transport.ok() && reply.code() == v1::TAKE_AGAIN;
  if (!transport.ok() || wait || reply.code() == v1::TAKE_WRONG_EPOCH) {
    ask_sent_ = false;
    ask_not_before_ = wait ? TimePoint{} : now + config_.retry_delay;
    if (!transport.ok())
      last_problem_ = fmt::format("coordinator: {}", fromAbsl(transport.message()));
    return false;
  }
  dropAsk();
  return true;
}

std::optional<TimePoint> WorkerCore::wakeAt() const {
  std::optional<TimePoint> at = transfer_.wakeAt();
  if (ask_ && !ask_sent_ && ask_not_before_ != TimePoint{} && (!at || ask_not_before_ < *at))
    at = ask_not_before_;
  return at;
}

bool WorkerCore::interrupted() const {
  return turn_epoch_ != sealed_ || over() || resting();
}

void WorkerCore::evaluated(std::int64_t hits, std::int64_t samples, double loss_sum) {
  if (interrupted()) return;
  evaluated_version_ = version_;
  evaluated_epoch_ = epoch_.epoch();
  v1::EvaluationPart part;
  part.set_epoch(epoch_.epoch());
  part.set_version(version_);
  part.set_rank(static_cast<std::uint32_t>(std::max(rank_, 0)));
  part.set_hits(hits);
  part.set_samples(samples);
  part.set_loss_sum(loss_sum);
  parts_.push_back(part);
  if (parts_.size() > kMaxUnseenParts) parts_.pop_front();
  urgent_ = true;
}

void WorkerCore::abort(std::int64_t step, std::string variable, std::string reason) {
  abort_.emplace();
  abort_->set_step(step);
  abort_->set_variable(std::move(variable));
  abort_->set_reason(std::move(reason));
  urgent_ = true;
}

void WorkerCore::fillCommon(v1::MemberReport& report) const {
  if (has_view_) {
    report.set_seen_view(view_.sequence());
    *report.mutable_seen_coordinator() = view_.coordinator();
  }
  report.set_highest_epoch(sealed_);
  report.set_sealed_epoch(sealed_);
  v1::WorkerState* worker = report.mutable_worker();
  worker->set_version(version_);
  worker->set_epoch(epoch_.epoch());
  for (const v1::EvaluationPart& part : parts_) *worker->add_evaluations() = part;
  if (abort_) *report.mutable_abort() = *abort_;
}

bool WorkerCore::takeUrgent() {
  return std::exchange(urgent_, false);
}

}  // namespace trainyard::runtime::ps
