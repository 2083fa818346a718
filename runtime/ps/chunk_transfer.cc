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
  const int servers =
      ps_of_chunk_.empty() ? 0 : *std::max_element(ps_of_chunk_.begin(), ps_of_chunk_.end()) + 1;
  servers_.assign(static_cast<std::size_t>(servers), {});
  later_.clear();
  place_.clear();
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) {
    place_.push_back(holder(id).held++);
    list(id);
  }
  for (Server& server : servers_) {
    server.window = window_;
    server.receipts = !until_answer_ && server.held > window_;
  }
}

void ChunkTransfer::setWindow(int ps, std::size_t window) {
  if (static_cast<std::size_t>(ps) < servers_.size())
    servers_[static_cast<std::size_t>(ps)].window = window;
}

void ChunkTransfer::list(std::uint32_t chunk) {
  const Task& task = tasks_[chunk];
  Server& server = holder(chunk);
  if (isOpen(task.phase)) server.open.insert(server.open.end(), chunk);
  if (task.phase != Phase::kQueued) return;
  server.queued.insert(server.queued.end(), chunk);
  if (task.not_before != TimePoint{}) later_.insert(task.not_before);
}

void ChunkTransfer::unlist(std::uint32_t chunk) {
  const Task& task = tasks_[chunk];
  Server& server = holder(chunk);
  if (isOpen(task.phase)) server.open.erase(chunk);
  if (task.phase != Phase::kQueued) return;
  server.queued.erase(chunk);
  if (task.not_before != TimePoint{}) later_.erase(later_.find(task.not_before));
}

void ChunkTransfer::become(std::uint32_t chunk, Phase phase, TimePoint not_before) {
  unlist(chunk);
  tasks_[chunk].phase = phase;
  tasks_[chunk].not_before = not_before;
  list(chunk);
}

void ChunkTransfer::forgetSent() {
  for (Server& server : servers_) server.flying = 0;
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) {
    tasks_[id].attempt = next_attempt_++;
    if (tasks_[id].phase == Phase::kFlying) become(id, Phase::kParked);  // its place is free
  }
}

void ChunkTransfer::begin(bool queued) {
  done_ = 0;
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) {
    Task& task = tasks_[id];
    task.ready = false;
    // What is under way is given up (a step that has its gradients already): it will not free its
    // place.
    if (task.phase == Phase::kFlying) --holder(id).flying;
    if (task.phase == Phase::kStoring) {
      task.again = true;
    } else {
      become(id, queued ? Phase::kQueued : Phase::kIdle);
    }
  }
}

// What is being stored will be wanted once more.
void ChunkTransfer::skip(std::uint32_t chunk) {
  if (tasks_[chunk].phase == Phase::kStoring) return;
  become(chunk, Phase::kDone);
  ++done_;
}

void ChunkTransfer::resume() {
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) {
    Task& task = tasks_[id];
    if (task.phase == Phase::kDone) continue;
    if (task.phase == Phase::kStoring) {
      task.again = true;
    } else {
      become(id, Phase::kIdle);
    }
  }
}

void ChunkTransfer::redo(std::uint32_t chunk) {
  if (tasks_[chunk].phase != Phase::kDone) return;
  become(chunk, Phase::kIdle);
  --done_;
}

void ChunkTransfer::ready(std::uint32_t chunk, bool hold) {
  tasks_[chunk].ready = true;
  if (!hold) queueIfReady(chunk);
}

void ChunkTransfer::queueIfReady(std::uint32_t chunk) {
  const Task& task = tasks_[chunk];
  if (task.phase == Phase::kIdle && task.ready) become(chunk, Phase::kQueued);
}

void ChunkTransfer::queueAllReady() {
  for (std::uint32_t id = 0; id < tasks_.size(); ++id) queueIfReady(id);
}

bool ChunkTransfer::anyReady() const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [](const Task& task) { return task.phase == Phase::kIdle && task.ready; });
}

void ChunkTransfer::again(std::uint32_t chunk, TimePoint not_before) {
  become(chunk, Phase::kQueued, not_before);
}

std::vector<std::size_t> ChunkTransfer::abreast(std::size_t servers) const {
  std::vector<std::size_t> limits(servers_.size(), kAll);
  // Up to the end of the first open chunk, so that a server that has few holds nobody back.
  std::size_t part = 1, of = 1;
  for (std::size_t ps = 0; ps < std::min(servers, servers_.size()); ++ps) {
    const Server& server = servers_[ps];
    if (server.open.empty()) continue;
    const std::size_t first = place_[*server.open.begin()];
    limits[ps] = first + server.window;
    if ((first + 1) * of < part * server.held) {
      part = first + 1;
      of = server.held;
    }
  }
  for (std::size_t ps = 0; ps < limits.size(); ++ps) {
    const std::size_t as_large = (part * servers_[ps].held + of - 1) / of;
    limits[ps] = std::min(limits[ps], as_large + servers_[ps].window - 1);
  }
  return limits;
}

void ChunkTransfer::takeOf(Server& server, std::size_t limit, TimePoint now,
                           std::vector<Sent>& sends) {
  for (auto next = server.queued.begin(); next != server.queued.end();) {
    const std::uint32_t id = *next++;
    if (until_answer_ ? place_[id] >= limit : server.flying >= server.window) return;
    if (tasks_[id].not_before > now) continue;
    ++server.flying;
    become(id, Phase::kFlying);
    tasks_[id].attempt = next_attempt_++;
    sends.push_back({id, tasks_[id].attempt});
  }
}

std::vector<ChunkTransfer::Sent> ChunkTransfer::take(TimePoint now, std::size_t servers) {
  std::vector<Sent> sends;
  const std::vector<std::size_t> limits =
      until_answer_ ? abreast(servers) : std::vector<std::size_t>(servers_.size(), kAll);
  for (std::size_t turn = 0; turn < servers; ++turn) {
    const std::size_t ps = (first_ + turn) % servers;
    if (ps < servers_.size()) takeOf(servers_[ps], limits[ps], now, sends);
  }
  return sends;
}

std::optional<TimePoint> ChunkTransfer::wakeAt() const {
  if (later_.empty()) return std::nullopt;
  return *later_.begin();
}

void ChunkTransfer::onReceived(std::uint32_t chunk, std::uint64_t attempt) {
  if (tasks_[chunk].attempt != attempt || tasks_[chunk].phase != Phase::kFlying) return;
  become(chunk, Phase::kParked);
  --holder(chunk).flying;
}

bool ChunkTransfer::onReply(std::uint32_t chunk, std::uint64_t attempt) {
  if (tasks_[chunk].attempt != attempt) return false;
  onReceived(chunk, attempt);
  return tasks_[chunk].phase == Phase::kParked;
}

void ChunkTransfer::storing(std::uint32_t chunk) {
  become(chunk, Phase::kStoring);
}

void ChunkTransfer::drop(std::uint32_t chunk) {
  become(chunk, Phase::kIdle);
}

void ChunkTransfer::onCut(std::uint32_t chunk) {
  Task& task = tasks_[chunk];
  TY_CHECK(task.phase == Phase::kStoring, "only what is being stored is cut off");
  task.again = false;
  become(chunk, Phase::kIdle);
}

bool ChunkTransfer::onStored(std::uint32_t chunk, std::uint64_t attempt, bool still_wanted) {
  Task& task = tasks_[chunk];
  TY_CHECK(task.phase == Phase::kStoring, "a chunk is stored once");
  if (task.again || task.attempt != attempt || !still_wanted) {
    task.again = false;
    become(chunk, Phase::kIdle);
    return false;
  }
  become(chunk, Phase::kDone);
  ++done_;
  return true;
}

}  // namespace trainyard::runtime::ps
