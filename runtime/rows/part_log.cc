#include "runtime/rows/part_log.h"

#include <algorithm>
#include <utility>

#include "runtime/rows/row_part.h"

namespace trainyard::runtime::rows {
namespace {

std::size_t bytesOf(const PartUpdate& update) {
  std::size_t bytes = 0;
  for (const RowGradients& table : update.gradients)
    bytes += table.ids.size() * 12 + table.sums.size() * sizeof(float);
  return bytes;
}

}  // namespace

std::uint64_t PartLog::begin(int follower, std::uint64_t life) {
  if (followers_.empty()) {
    stop();
    first_ = life << 32;
  }
  return followers_[follower] = mark();
}

void PartLog::add(std::shared_ptr<const PartUpdate> update, std::size_t most) {
  if (followers_.empty()) return;
  bytes_ += bytesOf(*update);
  updates_.push_back(std::move(update));
  if (bytes_ > most) stop();
}

std::optional<PartLog::Updates> PartLog::since(int follower, std::uint64_t mark) {
  if (followers_.empty() || mark < first_ || mark > this->mark()) return std::nullopt;
  followers_[follower] = mark;
  forgetRead();
  return Updates(updates_.begin() + static_cast<std::ptrdiff_t>(mark - first_), updates_.end());
}

void PartLog::keepFollowers(const std::set<int>& followers) {
  std::erase_if(followers_, [&](const auto& f) { return !followers.contains(f.first); });
  if (followers_.empty()) return stop();
  forgetRead();
}

// What all have.
void PartLog::forgetRead() {
  std::uint64_t read = mark();
  for (const auto& [follower, mark] : followers_) read = std::min(read, mark);
  for (; first_ < read; ++first_) {
    bytes_ -= bytesOf(*updates_.front());
    updates_.pop_front();
  }
}

void PartLog::stop() {
  followers_.clear();
  updates_.clear();
  bytes_ = 0;
}

}  // namespace trainyard::runtime::rows
