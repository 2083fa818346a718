// What must hold of every run: what is seen on its way, and the ledger of samples.
#include <algorithm>
#include <map>
#include <set>

#include "fmt/format.h"
#include "tests/sim/nodes.h"

namespace trainyard::sim {

// The weights after so many updates. A worker's death may keep its last push from some chunks, and
// so may a server's, where pushes have no replica.
bool World::plausible(std::int64_t version, std::uint32_t chunk,
                      std::span<const float> weights) const {
  const int kills = config_.replicate_pushes ? result_.worker_kills : result_.kills;
  const std::int64_t deaths = config_.tickets ? kills + result_.freezes : 0;
  for (std::int64_t lacking = 0; lacking <= std::min(deaths, version); ++lacking) {
    const auto at = static_cast<std::size_t>(std::min(version - lacking, plan_.steps));
    if (std::ranges::equal(reference_[at][chunk], weights)) return true;
  }
  return false;
}

// Without common steps: no sample is pushed twice, and all are when nobody died whose pushes have
// no replica.
void World::checkLeases() {
  std::set<std::int64_t> seen;
  for (const Used& used : used_) {
    for (int s = 0; s < used.share.count; ++s) {
      // After the death of a server that has no replica samples are read again.
      const bool again = result_.kills > 0 && config_.kill_ps && !config_.replicate_pushes;
      if (!seen.insert(used.share.first + s).second && !again)
        problem(fmt::format("position {} used twice", used.share.first + s));
    }
  }
  const int kills = config_.replicate_pushes && sameSteps() ? result_.worker_kills : result_.kills;
  if (result_.outcome != "succeeded" || kills + result_.freezes > 0 || config_.drop > 0) return;
  // A change drops what is computed of a step that does not come any more.
  if (config_.backup_workers > 0 && config_.scalings > 0) return;
  const auto used = static_cast<std::int64_t>(seen.size());
  std::int64_t expected = plan_.steps * plan_.step_samples;
  if (config_.passes > 0) expected = plan_.end_position;
  if (config_.backup_workers > 0) {
    expected = plan_.steps * (config_.workers - config_.backup_workers) * config_.batch;
    const std::int64_t taken = static_cast<std::int64_t>(used_.size());
    // Nobody takes what is computed of a step behind the end that a change has set.
    const std::int64_t dropped = computed_ - taken - result_.skipped;
    if (dropped < 0 || dropped > (config_.lengths > 0 ? config_.workers : 0))
      problem(fmt::format("{} gradients computed, {} taken, {} skipped", computed_, taken,
                          result_.skipped));
  }
  if (used != expected) problem(fmt::format("{} positions used, {} expected", used, expected));
}

// What a manifest says of its epochs leads from the stream's begin to its position, without a gap.
void World::checkLedger(const runtime::Manifest& manifest) {
  if (config_.tickets) return;
  std::int64_t step = 0;
  std::int64_t position = 0;
  std::int64_t samples = 0;
  // The last step of the passes may be shorter than the others.
  const auto bounded = [&](std::int64_t end) {
    return plan_.end_position > 0 ? std::min(end, plan_.end_position) : end;
  };
  for (const runtime::EpochRecord& record : manifest.epochs) {
    if (record.first_step > manifest.step) break;
    position = bounded(position + (record.first_step - step) * samples);
    const bool begins = step > 0 || samples > 0 || record.first_step == 0;
    if (!begins || record.first_position != position)
      problem(fmt::format("the manifest of step {} does not tell what epoch {} follows",
                          manifest.step, record.epoch));
    step = record.first_step;
    samples = record.step_samples;
  }
  position = bounded(position + (manifest.step - step) * samples);
  if (position != manifest.position)
    problem(fmt::format("the manifest of step {} is at position {}, its epochs have read {}",
                        manifest.step, manifest.position, position));
}

// Of each step, the newest epoch's record counts: exactly the positions of that step, each once.
void World::checkPositions() {
  if (!sharesSteps()) {
    checkLeases();
    return checkPushedRows();
  }
  std::map<std::int64_t, std::map<int, Used>> newest;
  for (const Used& used : used_) {
    auto& slot = newest[used.step];
    const auto it = slot.find(used.rank);
    if (it == slot.end() || it->second.epoch <= used.epoch) slot[used.rank] = used;
  }
  std::set<std::int64_t> seen;
  for (const auto& [step, ranks] : newest) {
    for (const auto& [rank, used] : ranks) {
      for (int s = 0; s < used.share.count; ++s) {
        if (!seen.insert(used.share.first + s).second)
          problem(fmt::format("position {} used twice", used.share.first + s));
      }
    }
  }
  const auto expected = static_cast<std::size_t>(plan_.positionOf(plan_.steps));
  if (!seen.empty() && *seen.rbegin() >= static_cast<std::int64_t>(expected))
    problem(fmt::format("position {} is behind the end", *seen.rbegin()));
  // A worker that died, or left in its sleep, after a step was complete has not written it down;
  // nothing may be used twice.
  const bool unwritten = result_.kills > 0 || (result_.freezes > 0 && result_.scalings > 0);
  if (result_.outcome == "succeeded" && !unwritten && seen.size() != expected) {
    problem(fmt::format("{} positions used, {} expected", seen.size(), expected));
  }
}

}  // namespace trainyard::sim
