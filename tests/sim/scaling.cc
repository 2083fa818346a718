// The planner's part: memberships of other tasks, and another number of steps.
#include <algorithm>

#include "tests/sim/nodes.h"

namespace trainyard::sim {

bool World::isMember(std::size_t worker) const {
  return static_cast<int>(worker) < wanted_workers_;
}

bool World::isServer(std::size_t ps) const {
  return static_cast<int>(ps) < wanted_ps_;
}

bool World::belongs(const Node& node) const {
  return node.role == v1::ROLE_PS ? isServer(node.index) : isMember(node.index);
}

void World::publishTasks(int ps, int workers) {
  wanted_ps_ = ps;
  wanted_workers_ = workers;
  nextRevision();
  membership_.clear_tasks();
  for (int i = 0; i < ps + workers; ++i) {
    v1::MemberTask* task = membership_.add_tasks();
    const bool is_ps = i < ps;
    task->mutable_id()->set_role(is_ps ? v1::ROLE_PS : v1::ROLE_WORKER);
    task->mutable_id()->set_index(static_cast<std::uint32_t>(is_ps ? i : i - ps));
    task->set_created(1);
    task->set_ip("127.0.0.1");
  }
}

// The record changes; the coordinator learns of it a moment later, and new workers start up. Who
// comes back before it has left is waited for by the planner: such a wish is left out here.
void World::scale() {
  const bool over = std::any_of(worker_done_.begin(), worker_done_.begin() + wanted_workers_,
                                [](bool b) { return b; });
  if (over || finished_) return;
  const int wanted =
      1 + static_cast<int>(rng_.below(static_cast<std::uint64_t>(config_.max_workers)));
  for (int i = wanted_workers_; i < wanted; ++i) {
    if (workers_[static_cast<std::size_t>(i)] != nullptr) return;
  }
  if (wanted == wanted_workers_) return;
  ++result_.scalings;
  const int before = wanted_workers_;
  publishTasks(wanted_ps_, wanted);
  for (int i = before; i < wanted; ++i) {
    at(kNobody, std::chrono::milliseconds(rng_.below(200)), [this, i] {
      const auto index = static_cast<std::size_t>(i);
      if (isMember(index) && workers_[index] == nullptr) startWorker(i);
    });
  }
  tellMembership();
}

// The same of servers.
void World::scalePs() {
  if (finished_ || ps_done_[0]) return;
  const auto choices = static_cast<std::uint64_t>(ps_places_ - config_.min_ps + 1);
  const int wanted = config_.min_ps + static_cast<int>(rng_.below(choices));
  for (int i = wanted_ps_; i < wanted; ++i) {
    if (ps_[static_cast<std::size_t>(i)] != nullptr) return;
  }
  if (wanted == wanted_ps_) return;
  ++result_.ps_scalings;
  const int before = wanted_ps_;
  publishTasks(wanted, wanted_workers_);
  breakLeavers(wanted, before);
  if (config_.kill_coordinator_of_leavers && wanted < before)
    at(kNobody, std::chrono::milliseconds(rng_.below(60)), [this] { killCoordinator(); });
  for (int i = before; i < wanted; ++i) {
    const auto index = static_cast<std::size_t>(i);
    ps_done_[index] = false;
    at(kNobody, std::chrono::milliseconds(rng_.below(200)), [this, i, index] {
      if (isServer(index) && ps_[index] == nullptr) startPs(i);
    });
  }
  tellMembership();
}

void World::nextRevision() {
  const int step = broken(Mutation::kRevisionsDisordered) ? 10 : 1;
  membership_.set_revision(membership_.revision() + step);
}

// One may overtake another.
void World::tellMembership() {
  at(kNobody, networkDelay(), [this, membership = membership_]() mutable {
    if (ps_[0] == nullptr || ps_done_[0]) return;
    breakMembership(membership);
    ps_[0]->coordinator->setMembership(membership, now_);
    execute(*ps_[0], ps_[0]->coordinator->takeActions());
  });
}

void World::changeLength() {
  if (finished_) return;
  const auto most = static_cast<std::uint64_t>(2 * config_.steps);
  membership_.set_steps(1 + static_cast<std::int64_t>(rng_.below(most)));
  nextRevision();
  ++result_.lengths;
  tellMembership();
}

}  // namespace trainyard::sim
