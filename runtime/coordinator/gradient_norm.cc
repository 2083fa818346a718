#include "runtime/coordinator/gradient_norm.h"

#include <cstddef>

#include "fmt/format.h"

namespace trainyard::runtime {

std::optional<std::string> GradientNorm::add(const MemberKey& key, const v1::SquareSum& told) {
  Part& part = parts_[key];
  if (told.step() <= part.step) return std::nullopt;
  const auto squares =
      SquareSum::fromLimbs({told.limbs().data(), static_cast<std::size_t>(told.limbs_size())});
  if (!squares) {
    return fmt::format("step {}: a sum of squares of {} limbs, expected {}", told.step(),
                       told.limbs_size(), SquareSum::kLimbs);
  }
  part.step = told.step();
  part.squares = *squares;
  return std::nullopt;
}

void GradientNorm::follow(const Membership& membership, const ChunkHolders& chunks, Outbox& out) {
  if (parts_.empty()) return;
  std::int64_t step = -1;
  SquareSum total;
  for (const auto& [key, member] : membership.members()) {
    if (!chunks.owns(key, member)) continue;
    const auto part = parts_.find(key);
    if (part == parts_.end() || (step >= 0 && part->second.step != step)) return;
    step = part->second.step;
    total.add(part->second.squares);
  }
  if (step < 0 || (newest_ && newest_->step() >= step)) return;
  newest_.emplace();
  newest_->set_step(step);
  newest_->set_norm(total.norm());
  out.changedForServers();
}

void GradientNorm::followKnown(const Membership& membership, std::int64_t first_step) {
  for (const auto& [key, member] : membership.members()) {
    const v1::ShardState& shard = member.report.shard();
    if (!member.in_epoch || !shard.has_norm()) continue;
    if (shard.norm().step() == first_step) newest_ = shard.norm();
  }
}

void GradientNorm::endEpoch() {
  parts_.clear();
  newest_.reset();
}

void GradientNorm::tell(v1::View& view) const {
  if (newest_) *view.mutable_gradient_norm() = *newest_;
}

}  // namespace trainyard::runtime
