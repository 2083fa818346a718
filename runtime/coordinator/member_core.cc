#include "runtime/coordinator/member_core.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/coordinator/epoch_plan.h"

namespace trainyard::runtime {
namespace {

constexpr std::size_t kMaxUnseenParts = 16;

bool newer(const v1::View& a, const v1::View& b) {
  const auto key = [](const v1::View& v) {
    return std::tuple(v.coordinator().created(), v.coordinator().start(), v.sequence());
  };
  return key(a) > key(b);
}

}  // namespace

Status failureOf(const v1::View& view) {
  if (view.table_full()) return absl::OutOfRangeError(view.failure());
  return absl::FailedPreconditionError(view.failure());
}

bool MemberCore::active() const {
  return has_view_ && epoch_.epoch() == view_.epoch().epoch() && sealed_ <= epoch_.epoch() &&
         (view_.phase() == v1::PHASE_ACTIVE || view_.phase() == v1::PHASE_STOPPING);
}

bool MemberCore::over() const {
  return has_view_ && (view_.phase() == v1::PHASE_DONE || view_.phase() == v1::PHASE_STOPPED ||
                       view_.phase() == v1::PHASE_FAILED || view_.left());
}

bool MemberCore::takeView(const v1::View& view) {
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
  }
  if (view.phase() != before && (stopping() || over())) urgent_ = true;
  if (over() && !was_over) urgent_ = true;
  return true;
}

void MemberCore::enterEpoch(const v1::EpochInfo& epoch) {
  epoch_ = epoch;
  plan_ = planOf(epoch_);
  rank_ = -1;
  for (const v1::EpochMember& member : epoch_.members()) {
    if (member.id().role() == v1::ROLE_WORKER && member.id().index() == index_)
      rank_ = static_cast<int>(member.rank());
  }
}

StatusOr<std::optional<Turn>> MemberCore::endTurn() const {
  if (!has_view_) return std::optional<Turn>();
  if (!view_.refusal().empty())
    return withClass(absl::InvalidArgumentError(view_.refusal()), FailureClass::kPermanent);
  if (view_.phase() == v1::PHASE_FAILED && !view_.left()) return failureOf(view_);
  if (!over()) return std::optional<Turn>();
  Turn turn;
  turn.epoch = epoch_.epoch();
  turn.kind = view_.phase() == v1::PHASE_DONE ? Turn::Kind::kDone : Turn::Kind::kStopped;
  if (view_.left()) turn.kind = Turn::Kind::kLeft;
  turn.step = view_.progress();
  return std::optional<Turn>(turn);
}

bool MemberCore::interrupted() const {
  return turn_epoch_ != sealed_ || over() || resting();
}

bool MemberCore::evaluationDone() const {
  const bool by_all = view_.evaluation().samples() > 0 && view_.evaluation().version() >= version_;
  const bool own = evaluated_version_ == version_ && evaluated_epoch_ == epoch_.epoch();
  return by_all || own;
}

void MemberCore::evaluated(std::int64_t hits, std::int64_t samples, double loss_sum,
                           const ClickScores& clicks) {
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
  part.mutable_negatives()->Add(clicks.negatives.begin(), clicks.negatives.end());
  part.mutable_positives()->Add(clicks.positives.begin(), clicks.positives.end());
  part.set_predicted(clicks.predicted);
  part.set_clicked(clicks.clicked);
  parts_.push_back(part);
  if (parts_.size() > kMaxUnseenParts) parts_.pop_front();
  urgent_ = true;
}

void MemberCore::abort(std::int64_t step, std::string variable, std::string reason) {
  if (abort_) return;  // what comes after it follows from it
  abort_.emplace();
  abort_->set_step(step);
  abort_->set_variable(std::move(variable));
  abort_->set_reason(std::move(reason));
  urgent_ = true;
}

void MemberCore::fillCommon(v1::MemberReport& report) const {
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
  if (epoch_.epoch() > 0 && epoch_.epoch() < sealed_) *report.mutable_begun() = epoch_;
}

bool MemberCore::takeUrgent() {
  return std::exchange(urgent_, false);
}

}  // namespace trainyard::runtime
