#include "runtime/coordinator/evaluations.h"

#include <iterator>
#include <utility>

#include "runtime/data/click_scores.h"

namespace trainyard::runtime {
namespace {

// Steps that take a millisecond bring several between two views.
constexpr std::size_t kMostEarlier = 16;

// Of a member that says something else, none.
ClickScores clicksOf(const v1::EvaluationPart& part) {
  ClickScores clicks;
  if (part.negatives_size() != kClickBins || part.positives_size() != kClickBins) return clicks;
  clicks.negatives.assign(part.negatives().begin(), part.negatives().end());
  clicks.positives.assign(part.positives().begin(), part.positives().end());
  clicks.predicted = part.predicted();
  clicks.clicked = part.clicked();
  return clicks;
}

}  // namespace

void Evaluations::startAnew(std::int64_t epoch) {
  lineage_ = epoch;
  parts_.clear();
}

void Evaluations::rollBack(std::int64_t version) {
  std::erase_if(earlier_, [&](const v1::Evaluation& one) { return one.version() > version; });
  if (newest_.version() > version) newest_.Clear();
}

void Evaluations::add(v1::Evaluation evaluation) {
  if (newest_.samples() > 0) earlier_.push_back(std::move(newest_));
  if (earlier_.size() > kMostEarlier) earlier_.pop_front();
  newest_ = std::move(evaluation);
}

void Evaluations::tell(v1::View& view) const {
  *view.mutable_evaluation() = newest_;
  view.mutable_earlier_evaluations()->Add(earlier_.begin(), earlier_.end());
}

// So many workers' scores make one of this version.
int Evaluations::scorers(std::int64_t version, const Membership& membership,
                         const JobSteps& steps) const {
  if (async_) return 1;
  return steps.plan().backup_workers > 0 && version < steps.count() ? 1 : membership.workers();
}

void Evaluations::follow(const Membership& membership, const JobSteps& steps, Outbox& out) {
  for (const auto& [key, member] : membership.members()) {
    for (const v1::EvaluationPart& part : member.report.worker().evaluations()) {
      if (part.epoch() < lineage_) continue;
      if (newest_.samples() > 0 && part.version() <= newest_.version()) continue;
      parts_[part.version()][part.rank()] = part;
    }
  }
  for (auto it = parts_.begin(); it != parts_.end();) {
    if (static_cast<int>(it->second.size()) < scorers(it->first, membership, steps)) {
      ++it;
      continue;
    }
    v1::Evaluation sum;
    sum.set_version(it->first);
    ClickScores clicks;
    for (const auto& [rank, part] : it->second) {
      clicks.add(clicksOf(part));
      sum.set_hits(sum.hits() + part.hits());
      sum.set_samples(sum.samples() + part.samples());
      sum.set_loss_sum(sum.loss_sum() + part.loss_sum());
    }
    if (const auto auc = clicks.auc()) sum.set_auc(*auc);
    if (const auto calibration = clicks.calibration()) sum.set_calibration(*calibration);
    // An older version that is still incomplete stays so: nobody looks at it any more.
    it = parts_.erase(parts_.begin(), std::next(it));
    out.add(EvaluationAction{sum});
    add(std::move(sum));
    out.changed();
  }
}

void Evaluations::tell(v1::JobProgress& progress) const {
  if (newest_.samples() == 0) return;
  progress.set_evaluated(true);
  progress.set_accuracy(static_cast<double>(newest_.hits()) /
                        static_cast<double>(newest_.samples()));
  progress.set_accuracy_step(newest_.version());
}

}  // namespace trainyard::runtime
