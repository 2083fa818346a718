#include "runtime/ps/chunk_transfer.h"

#include <algorithm>
#include <limits>

#include "base/core/check.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

}  // namespace

ChunkTransfer::ChunkTransfer(std::vector<int> ps_of_chunk, std::size_t window, bool until_answer,
                             std::size_t first)
    : window_(window), until_answer_(until_answer), first_(first), tasks_(ps_of_chunk.size()) {
  setServers(ps_of_chunk);
}

void ChunkTransfer::setServers(const std::vector<int>& ps_of_chunk) {
  TY_CHECK(ps_of_chunk.size() == tasks_.size(), "the grid of chunks does not change");
  ps_of_chunk_ = ps_of_chunk;
  receipts_.clear();
  const int servers =
      ps_of_chunk_.empty() ? 0 : *std::max_element(ps_of_chunk_.begin(), ps_of_chunk_.end()) + 1;
  flying_.assign(static_cast<std::size_t>(servers), 0);
  windows_.assign(static_cast<std::size_t>(servers), window_);
  held_.assign(static_cast<std::size_t>(servers), 0);
  place_.clear();
  for (const int ps : ps_of_chunk_) place_.push_back(held_[static_cast<std::size_t>(ps)]++);
  for (const std::size_t chunks : held_) receipts_.push_back(!until_answer_ && chunks > window_);
}

void ChunkTransfer::setWindow(int ps, std::size_t window) {
  if (static_cast<std::size_t>(ps) < windows_.size())
    windows_[static_cast<std::size_t>(ps)] = window;
}

void ChunkTransfer::forgetSent() {
  std::fill(flying_.begin(), flying_.end(), 0);
  for (Task& task : tasks_) {
    task.attempt = next_attempt_++;
    if (task.phase == Phase::kFlying) task.phase = Phase::kParked;  // its place is free
  }
}

void ChunkTransfer::begin(bool queued) {
  done_ = 0;
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) {
    Task& task = tasks_[id];
    task.ready = false;
    // What is under way is given up (a step that has its gradients already): it will not free its
    // place.
    if (task.phase == Phase::kFlying) --flying_[static_cast<std::size_t>(ps_of_chunk_[id])];
    if (task.phase == Phase::kStoring) {
      task.again = true;
    } else {
      task.phase = queued ? Phase::kQueued : Phase::kIdle;
      task.not_before = TimePoint{};
    }
  }
}

// What is being stored will be wanted once more.
void ChunkTransfer::skip(std::uint32_t chunk) {
  Task& task = tasks_[chunk];
  if (task.phase == Phase::kStoring) return;
  task.phase = Phase::kDone;
  ++done_;
}

void ChunkTransfer::resume() {
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) {
    Task& task = tasks_[id];
    if (task.phase == Phase::kDone) continue;
    if (task.phase == Phase::kStoring) {
      task.again = true;
    } else {
      task.phase = Phase::kIdle;
    }
  }
}

void ChunkTransfer::redo(std::uint32_t chunk) {
  if (tasks_[chunk].phase != Phase::kDone) return;
  tasks_[chunk].phase = Phase::kIdle;
  --done_;
}

void ChunkTransfer::ready(std::uint32_t chunk, bool hold) {
  tasks_[chunk].ready = true;
  if (!hold) queueIfReady(chunk);
}

void ChunkTransfer::queueIfReady(std::uint32_t chunk) {
  Task& task = tasks_[chunk];
  if (task.phase != Phase::kIdle || !task.ready) return;
  task.phase = Phase::kQueued;
  task.not_before = TimePoint{};
}

void ChunkTransfer::queueAllReady() {
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) queueIfReady(id);
}

bool ChunkTransfer::anyReady() const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [](const Task& task) { return task.phase == Phase::kIdle && task.ready; });
}

void ChunkTransfer::again(std::uint32_t chunk, TimePoint not_before) {
  tasks_[chunk].phase = Phase::kQueued;
  tasks_[chunk].not_before = not_before;
}

std::vector<std::size_t> ChunkTransfer::abreast(std::size_t servers) const {
  std::vector<std::size_t> limits(held_.size(), kAll);
  // Up to the end of the first open chunk, so that a server that has few holds nobody back.
  std::size_t part = 1, of = 1;
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) {
    const auto ps = static_cast<std::size_t>(ps_of_chunk_[id]);
    if (!isOpen(tasks_[id]) || ps >= servers || limits[ps] != kAll) continue;
    limits[ps] = place_[id] + windows_[ps];
    if ((place_[id] + 1) * of < part * held_[ps]) {
      part = place_[id] + 1;
      of = held_[ps];
    }
  }
  for (std::size_t ps = 0; ps < limits.size(); ++ps) {
    const std::size_t as_large = (part * held_[ps] + of - 1) / of;
    limits[ps] = std::min(limits[ps], as_large + windows_[ps] - 1);
  }
  return limits;
}

std::vector<ChunkTransfer::Sent> ChunkTransfer::take(TimePoint now, std::size_t servers) {
  std::vector<Sent> sends;
  const std::vector<std::size_t> limits =
      until_answer_ ? abreast(servers) : std::vector<std::size_t>(held_.size(), kAll);
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) {
    Task& task = tasks_[id];
    const auto ps = static_cast<std::size_t>(ps_of_chunk_[id]);
    if (task.phase != Phase::kQueued || task.not_before > now || ps >= servers) continue;
    const bool waits = until_answer_ ? place_[id] >= limits[ps] : flying_[ps] >= windows_[ps];
    if (waits) continue;
    ++flying_[ps];
    task.phase = Phase::kFlying;
    task.attempt = next_attempt_++;
    sends.push_back({id, task.attempt});
  }
  const auto turn = [&](const Sent& sent) {
    return (static_cast<std::size_t>(ps_of_chunk_[sent.chunk]) + servers - first_ % servers) %
           servers;
  };
  std::ranges::stable_sort(sends, {}, turn);
  return sends;
}

std::optional<TimePoint> ChunkTransfer::wakeAt() const {
  std::optional<TimePoint> earliest;
  for (const Task& task : tasks_) {
    if (task.phase != Phase::kQueued || task.not_before == TimePoint{}) continue;
    if (!earliest || task.not_before < *earliest) earliest = task.not_before;
  }
  return earliest;
}

void ChunkTransfer::onReceived(std::uint32_t chunk, std::uint64_t attempt) {
  Task& task = tasks_[chunk];
  if (task.attempt != attempt || task.phase != Phase::kFlying) return;
  task.phase = Phase::kParked;
  --flying_[static_cast<std::size_t>(ps_of_chunk_[chunk])];
}

bool ChunkTransfer::onReply(std::uint32_t chunk, std::uint64_t attempt) {
  if (tasks_[chunk].attempt != attempt) return false;
  onReceived(chunk, attempt);
  return tasks_[chunk].phase == Phase::kParked;
}

void ChunkTransfer::storing(std::uint32_t chunk) {
  tasks_[chunk].phase = Phase::kStoring;
}

void ChunkTransfer::drop(std::uint32_t chunk) {
  tasks_[chunk].phase = Phase::kIdle;
}

void ChunkTransfer::onCut(std::uint32_t chunk) {
  Task& task = tasks_[chunk];
  TY_CHECK(task.phase == Phase::kStoring, "only what is being stored is cut off");
  task.again = false;
  task.phase = Phase::kIdle;
}

bool ChunkTransfer::onStored(std::uint32_t chunk, std::uint64_t attempt, bool still_wanted) {
  Task& task = tasks_[chunk];
  TY_CHECK(task.phase == Phase::kStoring, "a chunk is stored once");
  if (task.again || task.attempt != attempt || !still_wanted) {
    task.again = false;
    task.phase = Phase::kIdle;
    return false;
  }
  task.phase = Phase::kDone;
  ++done_;
  return true;
}

}  // namespace trainyard::runtime::ps
