#include "runtime/ps/worker_core.h"

#include <algorithm>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/placement/placement.h"
#include "runtime/ps/async_worker.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/ps/protocol.h"
#include "runtime/ps/sync_worker.h"

namespace trainyard::runtime::ps {

std::unique_ptr<WorkerMachine> makeWorkerMachine(WorkerConfig config) {
  if (config.asynchronous) return std::make_unique<AsyncWorker>(std::move(config));
  return std::make_unique<SyncWorker>(std::move(config));
}

namespace {

// Of more than kFewServers (six of them, with ten workers, were 6 % slower with two chunks each
// than with the whole window). Two of 400 KB were far too few with eight servers, two of 100 KB
// were not; of more than sixteen nothing was measured.
constexpr std::uint64_t kLeastOfMany = 3;

// Where all begin.
std::vector<int> withParts(std::vector<int> ps_of_chunk, const std::vector<int>& ps_of_part) {
  ps_of_chunk.insert(ps_of_chunk.end(), ps_of_part.begin(), ps_of_part.end());
  return ps_of_chunk;
}

}  // namespace

WorkerCore::WorkerCore(WorkerConfig config)
    : MemberCore(config.index),
      config_(std::move(config)),
      transfer_(withParts(config_.ps_of_chunk, config_.ps_of_part), config_.window,
                config_.window_until_answer, config_.index) {}

bool WorkerCore::takeView(const v1::View& view) {
  const std::int64_t sealed = sealed_;
  if (!MemberCore::takeView(view)) return false;
  if (sealed_ > sealed) dropAsk();  // an answer that comes now was not reported, and does not count
  return true;
}

void WorkerCore::enterEpoch(const v1::View& view) {
  MemberCore::enterEpoch(view.epoch());
  servers_.clear();
  for (const v1::EpochMember& member : epoch_.members()) {
    if (member.id().role() != v1::ROLE_PS) continue;
    servers_.resize(std::max<std::size_t>(servers_.size(), member.id().index() + 1));
    servers_[member.id().index()] = member.incarnation();
  }
  links_.clear();
  transfer_.forgetSent();
  transfer_.setServers(serversOf(withParts(config_.ps_of_chunk, config_.ps_of_part), epoch_));
  for (std::size_t ps = 0; ps < servers_.size(); ++ps)
    transfer_.setWindow(static_cast<int>(ps), window());
  asked_ = 0;
  dropAsk();
}

Send WorkerCore::requestFor(std::uint32_t chunk) const {
  Send send;
  send.chunk = chunk;
  send.ps = transfer_.serverOf(chunk);
  send.header.set_protocol(kChunkProtocol);
  send.header.set_job_uid(config_.job_uid);
  send.header.set_epoch(epoch_.epoch());
  *send.header.mutable_server() = servers_[static_cast<std::size_t>(send.ps)];
  send.header.set_worker(config_.index);
  *send.header.mutable_worker_incarnation() = config_.self;
  send.header.set_chunk(chunk);
  return send;
}

std::optional<Send> WorkerCore::readingOf(std::size_t part) const {
  const std::uint32_t chunk = chunks() + static_cast<std::uint32_t>(part);
  if (static_cast<std::size_t>(transfer_.serverOf(chunk)) >= servers_.size()) return std::nullopt;
  Send send = requestFor(chunk);
  send.header.set_pull_only(true);
  return send;
}

std::vector<Send> WorkerCore::sendsOf(TimePoint now) {
  std::vector<Send> sends;
  for (const ChunkTransfer::Sent& sent : transfer_.take(now, servers_.size())) {
    Send send = requestFor(sent.chunk);
    send.attempt = sent.attempt;
    send.header.set_receipt(transfer_.wantsReceipt(send.ps));
    sends.push_back(std::move(send));
  }
  return sends;
}

void WorkerCore::onPace(int ps, int lane, double bytes_per_second, Duration round_trip) {
  if (!config_.window_until_answer || config_.chunk_bytes == 0) return;
  LinkEstimate& link = links_[ps];
  link.observe(lane, bytes_per_second, round_trip);
  const std::uint64_t chunks = (link.windowBytes() + config_.chunk_bytes - 1) / config_.chunk_bytes;
  transfer_.setWindow(ps, std::max<std::size_t>(window(), chunks));
}

std::size_t WorkerCore::window() const {
  const std::size_t servers = servers_.size();
  if (config_.abreast_bytes == 0 || servers <= kFewServers) return config_.window;
  const std::uint64_t chunks = config_.abreast_bytes / (servers * config_.chunk_bytes);
  return std::min<std::size_t>(config_.window, std::max(chunks, kLeastOfMany));
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

void WorkerCore::writeLoss(v1::ChunkRequestHeader& header) const {
  header.set_loss_sum(own_loss_.loss_sum);
  if (own_loss_.hits != kNotCounted) header.set_hits(own_loss_.hits);
}

void WorkerCore::takeOwnLoss(int samples) {
  step_loss_ = own_loss_.loss_sum / std::max(samples, 1);
  step_accuracy_ = accuracyOf(own_loss_.hits, samples);
}

void WorkerCore::fillCommon(v1::MemberReport& report) const {
  MemberCore::fillCommon(report);
  v1::WorkerState* worker = report.mutable_worker();
  if (loss_step_ >= 0) {
    worker->set_has_loss(true);
    worker->set_loss(step_loss_);
    worker->set_loss_step(loss_step_);
  }
  report.set_leaving(over() && step_state_ == StepState::kNone);
}

}  // namespace trainyard::runtime::ps
