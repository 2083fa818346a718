// What stands around a ring worker's state machine: its group, the sums of a step, the trainer.
#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/coordinator/epoch_plan.h"
#include "tests/sim/ring_world.h"

namespace trainyard::sim {
namespace {

// A number may be given again where nobody that knew of it lives any more.
std::string nameOf(const v1::EpochInfo& epoch) {
  std::string name = fmt::format("{}", epoch.epoch());
  for (const v1::EpochMember& m : epoch.members())
    name += fmt::format(" {}.{}", m.id().index(), m.incarnation().start());
  return name;
}

}  // namespace

// What the trainer's thread does when something has changed.
void RingWorld::work(Node& node) {
  copyIfDue(node);
  if (node.preparing && node.machine->cancelled(node.preparing->epoch())) fails(node);
  if (node.doing == Node::Doing::kSumming && node.machine->cancelled(node.turn.epoch)) fails(node);
  if (node.preparing || node.doing != Node::Doing::kNothing) return;
  node.preparing = node.machine->takePrepare();
  if (!node.preparing) return takeTurn(node);
  node.group = nameOf(*node.preparing);
  const auto find = finder(node);
  at(std::chrono::milliseconds(rng_.below(30)), [this, find, name = nameOf(*node.preparing)] {
    Node* alive = find();
    if (alive != nullptr && alive->preparing && nameOf(*alive->preparing) == name) join(*alive);
  });
}

void RingWorld::join(Node& node) {
  Group& group = groups_[node.group];
  group.epoch = *node.preparing;
  group.joined.insert(node.index);
  if (group.broken) {
    fails(node);
    return work(node);
  }
  if (static_cast<int>(group.joined.size()) == group.epoch.members_size()) give(node.group);
}

// All ranks are there: the source's state becomes that of all.
void RingWorld::give(const std::string& name) {
  const v1::EpochInfo& epoch = groups_[name].epoch;
  for (const v1::EpochMember& m : epoch.members()) {
    Node* node = nodes_[m.id().index()].get();
    if (static_cast<int>(m.rank()) != epoch.source_rank() || node == nullptr) continue;
    if (node->machine->beginReceive(epoch)) load(*node, epoch);
    for (const v1::EpochMember& other : epoch.members()) {
      Node* to = nodes_[other.id().index()].get();
      if (to == nullptr) continue;
      at(networkDelay(), [this, find = finder(*to), name, given = node->state] {
        Node* alive = find();
        if (alive != nullptr && alive->preparing && alive->group == name) receive(*alive, given);
      });
    }
  }
}

void RingWorld::receive(Node& node, const State& given) {
  const v1::EpochInfo epoch = *node.preparing;
  const bool is_source =
      std::any_of(epoch.members().begin(), epoch.members().end(), [&](const v1::EpochMember& m) {
        return m.id().index() == node.index && static_cast<int>(m.rank()) == epoch.source_rank();
      });
  const bool missing = !is_source && node.machine->beginReceive(epoch);
  at(networkDelay(), [this, find = finder(node), name = node.group, given, missing] {
    Node* alive = find();
    if (alive == nullptr || !alive->preparing || alive->group != name) return;
    if (missing) alive->state = given;
    alive->machine->onPrepared(*std::exchange(alive->preparing, std::nullopt));
    check(*alive, alive->machine->version(), "begins with");
    poke(*alive);
    work(*alive);
  });
}

// What is in no rank's memory.
void RingWorld::load(Node& node, const v1::EpochInfo& epoch) {
  if (epoch.fresh()) {
    node.state = initialState();
    return;
  }
  for (const runtime::Manifest& manifest : manifests_) {
    if (manifest.fileName() != epoch.restore_manifest()) continue;
    node.state = files_.at(manifest.files.front().name).second;
    return;
  }
  problem("a source has nothing to give");
}

void RingWorld::takeTurn(Node& node) {
  auto turn = node.machine->turn();
  if (!turn.ok()) {
    if (result_.outcome != "failed") problem(turn.status().ToString());
    return;
  }
  using Kind = runtime::Turn::Kind;
  const bool stands = node.machine->standing();
  if (!turn->has_value() && !stands) return;
  const bool over =
      turn->has_value() && ((*turn)->kind == Kind::kDone || (*turn)->kind == Kind::kStopped ||
                            (*turn)->kind == Kind::kLeft);
  if (over) return;
  node.turn = turn->value_or(runtime::Turn{});
  if (stands) {
    node.turn.step = node.machine->step();
    node.turn.epoch = node.machine->epoch();
    for (const v1::EpochMember& m : groups_[node.group].epoch.members()) {
      if (m.id().index() == node.index) node.turn.rank = static_cast<int>(m.rank());
    }
    return handIn(node);
  }
  check(node, node.turn.step, "computes from");
  compute(node);
}

void RingWorld::compute(Node& node) {
  node.doing = Node::Doing::kComputing;
  at(std::chrono::microseconds(500 + rng_.below(6000)), [this, find = finder(node)] {
    Node* alive = find();
    if (alive == nullptr) return;
    if (alive->turn.kind == runtime::Turn::Kind::kTrain) return handIn(*alive);
    const std::int64_t n =
        100 / alive->turn.ranks + (alive->turn.rank < 100 % alive->turn.ranks ? 1 : 0);
    alive->doing = Node::Doing::kNothing;
    alive->machine->evaluated(n / 2, n, 0.5 * static_cast<double>(n));
    poke(*alive);
    work(*alive);
  });
}

// When all ranks have done so each gets the sum, in its own time.
void RingWorld::handIn(Node& node) {
  node.doing = Node::Doing::kSumming;
  Group& group = groups_[node.group];
  if (group.broken || node.machine->cancelled(node.turn.epoch)) {
    fails(node);
    return work(node);
  }
  auto& parts = group.parts[node.turn.step];
  parts[node.turn.rank] = gradient({node.turn.first_position, node.turn.samples});
  if (static_cast<int>(parts.size()) < group.epoch.members_size()) return;
  Floats sum(parts.begin()->second.size());
  for (const auto& [rank, part] : parts) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  for (const std::uint32_t index : group.joined) {
    Node* member = nodes_[index].get();
    if (member == nullptr) continue;
    at(networkDelay(),
       [this, find = finder(*member), sum, name = node.group, step = node.turn.step] {
         Node* alive = find();
         if (alive == nullptr || alive->group != name || alive->turn.step != step) return;
         if (alive->doing == Node::Doing::kSumming) sumIsThere(*alive, sum);
       });
  }
  group.parts.erase(node.turn.step);
}

void RingWorld::sumIsThere(Node& node, const Floats& sum) {
  copyIfDue(node);
  if (!node.machine->beginApply()) {
    node.doing = Node::Doing::kNothing;
    node.machine->leaveStep();
    poke(node);
    return work(node);
  }
  node.doing = Node::Doing::kApplying;
  at(std::chrono::microseconds(rng_.below(500)), [this, find = finder(node), sum] {
    if (Node* alive = find()) apply(*alive, sum);
  });
}

void RingWorld::apply(Node& node, const Floats& sum) {
  const std::int64_t step = node.machine->step();
  takeStep(node.state, step, sum, node.machine->stepSamples());
  node.doing = Node::Doing::kNothing;
  node.machine->applied(1.0);
  if (check(node, step + 1, "has taken")) {
    auto& ranks = used_[step];
    std::erase_if(ranks, [&](const auto& u) { return u.second.first < node.turn.epoch; });
    ranks[node.turn.rank] = {node.turn.epoch, {node.turn.first_position, node.turn.samples}};
  }
  poke(node);
  work(node);
}

// The group is of no more use to this rank, and so to nobody.
void RingWorld::fails(Node& node) {
  const bool stepping = node.doing == Node::Doing::kSumming;
  const std::int64_t epoch = node.preparing ? node.preparing->epoch() : node.turn.epoch;
  result_.failures += stepping;
  node.machine->onFailure(epoch, "a rank is gone");
  if (stepping) node.machine->leaveStep();
  node.preparing.reset();
  node.doing = Node::Doing::kNothing;
  breakGroup(node);
  poke(node);
}

// Who waits for it learns of that after a while, or has got what it waits for by then.
void RingWorld::breakGroup(const Node& who) {
  const auto found = groups_.find(who.group);
  if (found == groups_.end() || std::exchange(found->second.broken, true)) return;
  for (const std::uint32_t index : found->second.joined) {
    Node* member = nodes_[index].get();
    if (member == nullptr || index == who.index || member->group != who.group) continue;
    at(networkDelay(), [this, find = finder(*member), name = who.group] {
      Node* alive = find();
      if (alive == nullptr || alive->group != name) return;
      if (!alive->preparing && alive->doing != Node::Doing::kSumming) return;
      if (alive->preparing && nameOf(*alive->preparing) != name) return;
      fails(*alive);
      work(*alive);
    });
  }
}

void RingWorld::copyIfDue(Node& node) {
  if (node.doing == Node::Doing::kApplying || !node.machine->takeSnapshot()) return;
  v1::ShardFile file;
  file.set_epoch(node.machine->epoch());
  file.set_version(node.machine->version());
  file.set_name(fmt::format("all.step-{}.e{}.w{}.i{}", file.version(), file.epoch(), node.index,
                            node.incarnation.start()));
  check(node, file.version(), "copies");
  at(std::chrono::milliseconds(1 + rng_.below(60)),
     [this, find = finder(node), file, state = node.state] {
       Node* alive = find();
       if (alive == nullptr) return;  // died before the rename
       files_[file.name()] = {file.version(), state};
       alive->machine->onWritten(file);
       poke(*alive);
     });
}

}  // namespace trainyard::sim
