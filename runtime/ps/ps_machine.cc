#include "runtime/ps/ps_machine.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/core/strings.h"
#include "runtime/checkpoint/names.h"
#include "runtime/coordinator/epoch_plan.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_moves.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::size_t kReportedFiles = 4;

// What the checkpoint that is asked for is a delta of.
DeltaBase baseOf(const v1::View& view) {
  const auto named = parseManifestName(view.checkpoint_base());
  return named ? DeltaBase{view.checkpoint_base(), named->step} : DeltaBase{};
}

auto order(const v1::View& v) {
  return std::tuple(v.coordinator().created(), v.coordinator().start(), v.sequence());
}

}  // namespace

void PsMachine::onView(const v1::View& view, std::vector<ChunkAnswer>& answers) {
  if (has_view_ && order(view) <= order(view_)) return;
  const v1::Phase before = view_.phase();
  view_ = view;
  has_view_ = true;
  const std::int64_t epoch = view.epoch().epoch();
  if (epoch > highest_epoch_) {
    highest_epoch_ = epoch;
    armed_ = -1;
    shard_.seal(epoch, answers);
    urgent_ = true;
  }
  // A server that is to leave, or not yet to join, keeps what it holds.
  const bool prepares = view.phase() == v1::PHASE_PREPARING && servesIn(view.epoch(), shard_.ps());
  if (prepares && epoch == highest_epoch_ && epoch > preparing_) {
    if (missedSteps(view.epoch())) shard_.dropReplicas();
    preparing_ = epoch;
    to_prepare_ = view.epoch();
  }
  const bool running = view.phase() == v1::PHASE_ACTIVE || view.phase() == v1::PHASE_STOPPING;
  if (running && begun_.epoch() != epoch) begun_ = view.epoch();
  if (running && epoch == prepared_ && std::exchange(released_, epoch) != epoch) {
    shard_.release();
    if (!partsToCopy(view.epoch(), shard_.ps()).empty()) to_copy_ = view.epoch();
  }
  if (running && epoch == highest_epoch_ && !servesIn(view.epoch(), shard_.ps()) && keeper())
    shard_.dropReplicas();
  if (running && view.has_gradient_norm()) {
    shard_.setNorm(epoch, view.gradient_norm().step(), view.gradient_norm().norm());
  }
  const std::int64_t wanted =
      view.phase() == v1::PHASE_STOPPING ? view.stop_at() : view.checkpoint_at();
  if (running && epoch == prepared_ && wanted >= 0 && wanted != armed_) {
    armed_ = wanted;
    const DeltaBase base = wanted == view.checkpoint_at() ? baseOf(view) : DeltaBase{};
    // What is committed has it: no later one begins before it, nor does this.
    shard_.forgetGoneBefore(base.any() ? base.version : view.last_checkpoint());
    shard_.arm(wanted, base);
    urgent_ = true;
  }
  if (over() && view.phase() != before) urgent_ = true;
}

bool PsMachine::keeper() const {
  return shard_.ps() == kWorkerKeeper;
}

// A worker stays when there are several servers and it keeps nothing for a while; what it kept
// before is then of an older history, even where its version is the same.
bool PsMachine::missedSteps(const v1::EpochInfo& epoch) const {
  return keeper() && std::any_of(epoch.past().begin(), epoch.past().end(), [&](const auto& part) {
           return part.epoch() > prepared_ && part.epoch() < epoch.epoch();
         });
}

std::optional<v1::EpochInfo> PsMachine::takePrepare() {
  return std::exchange(to_prepare_, std::nullopt);
}

std::optional<v1::EpochInfo> PsMachine::takeCopies() {
  return std::exchange(to_copy_, std::nullopt);
}

void PsMachine::onCopied(const v1::EpochInfo& epoch) {
  if (epoch.epoch() != highest_epoch_ || copied_ == epoch.epoch()) return;
  copied_ = epoch.epoch();
  urgent_ = true;
}

void PsMachine::onPrepared(const v1::EpochInfo& epoch, const Status& loaded) {
  if (epoch.epoch() != highest_epoch_) return;  // a newer one has begun meanwhile
  Status status = loaded;
  if (status.ok()) {
    status =
        shard_.open(epoch.epoch(), planOf(epoch), epoch.fresh(), !epoch.restore_manifest().empty());
  }
  if (status.ok()) {
    prepared_ = epoch.epoch();
    problem_.clear();
  } else {
    problem_ = std::string(fromAbsl(status.message()));
  }
  urgent_ = true;
}

// A server without chunks writes its part of the last version when the epoch begins: it is needed
// at the end.
void PsMachine::onWritten(const v1::ShardFile& file) {
  const auto order = [](const v1::ShardFile& f) { return std::pair(f.epoch(), f.version()); };
  const auto later = std::find_if(written_.begin(), written_.end(),
                                  [&](const v1::ShardFile& f) { return order(f) > order(file); });
  written_.insert(later, file);
  if (written_.size() > kReportedFiles) written_.pop_front();
  urgent_ = true;
}

void PsMachine::fillReport(v1::MemberReport& report) const {
  if (has_view_) {
    report.set_seen_view(view_.sequence());
    *report.mutable_seen_coordinator() = view_.coordinator();
  }
  report.set_highest_epoch(highest_epoch_);
  report.set_sealed_epoch(highest_epoch_);
  report.set_prepared_epoch(prepared_);
  if (begun_.epoch() > 0 && begun_.epoch() < highest_epoch_) *report.mutable_begun() = begun_;
  fillShard(report);
  for (const v1::ShardFile& file : written_) *report.add_written() = file;
  if (auto abort = shard_.abort()) *report.mutable_abort() = *abort;
  report.set_parameter_bytes(shard_.parameterBytes());
  report.set_leaving(over());
}

void PsMachine::fillKept(v1::MemberReport& report) const {
  report.set_highest_epoch(std::max(report.highest_epoch(), highest_epoch_));
  report.set_sealed_epoch(std::min(report.sealed_epoch(), highest_epoch_));
  report.set_prepared_epoch(prepared_);
  fillShard(report);
}

void PsMachine::fillShard(v1::MemberReport& report) const {
  *report.mutable_shard() = shard_.state();
  report.mutable_shard()->set_problem(problem_);
  report.mutable_shard()->set_copied_epoch(copied_);
}

bool PsMachine::takeUrgent() {
  return std::exchange(urgent_, false);
}

bool PsMachine::serves() const {
  const bool running = view_.phase() == v1::PHASE_ACTIVE || view_.phase() == v1::PHASE_STOPPING;
  return has_view_ && running && prepared_ == view_.epoch().epoch();
}

bool PsMachine::over() const {
  return has_view_ && (view_.phase() == v1::PHASE_DONE || view_.phase() == v1::PHASE_STOPPED ||
                       view_.phase() == v1::PHASE_FAILED || view_.left());
}

}  // namespace trainyard::runtime::ps
