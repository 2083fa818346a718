#include "runtime/ps/fetch_queue.h"

#include "base/core/check.h"

namespace trainyard::runtime::ps {

FetchQueue::FetchQueue(const std::vector<FetchedChunk>& chunks, FetchLimits limits, TimePoint now)
    : limits_(limits), asked_(chunks.size(), false), left_(chunks.size()), last_success_(now) {
  for (std::size_t at = 0; at < chunks.size(); ++at) {
    from_.push_back(chunks[at].from);
    servers_[chunks[at].from].waiting.push_back(at);
  }
}

// Whom to ask: who owes least, so that one that does not answer takes no more than its share.
FetchQueue::Server* FetchQueue::next(TimePoint now) {
  Server* least = nullptr;
  for (auto& [ps, server] : servers_) {
    if (server.waiting.empty() || server.not_before > now) continue;
    if (least == nullptr || server.asked < least->asked) least = &server;
  }
  return least;
}

std::vector<std::size_t> FetchQueue::take(TimePoint now) {
  std::vector<std::size_t> due;
  while (under_way_ < limits_.window) {
    Server* server = next(now);
    if (server == nullptr) break;
    if (server->asked == 0) server->heard = now;
    const std::size_t at = server->waiting.front();
    server->waiting.pop_front();
    ++server->asked;
    ++under_way_;
    asked_[at] = true;
    due.push_back(at);
  }
  return due;
}

FetchQueue::Server& FetchQueue::answered(std::size_t at) {
  TY_CHECK(asked_[at], "what was asked for is answered once");
  asked_[at] = false;
  Server& server = servers_[from_[at]];
  --server.asked;
  --under_way_;
  return server;
}

void FetchQueue::onArrived(std::size_t at, TimePoint now) {
  answered(at).heard = now;
  last_success_ = now;
  --left_;
}

void FetchQueue::onFailed(std::size_t at, TimePoint now) {
  Server& server = answered(at);
  server.waiting.push_front(at);
  server.not_before = now + limits_.pause;
  server.heard = now;
}

std::optional<int> FetchQueue::silent(TimePoint now) const {
  for (const auto& [ps, server] : servers_) {
    if (server.asked > 0 && now - server.heard > limits_.call_limit) return ps;
  }
  return std::nullopt;
}

}  // namespace trainyard::runtime::ps
