// What stands around the state machines: links, calls, files, the trainer. Closures never keep a
// node alive: a message to a process that is gone is lost, and its sender learns of it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_moves.h"
#include "tests/sim/nodes.h"

namespace trainyard::sim {
v1::MemberReport World::reportOf(Node& node) {
  v1::MemberReport report;
  report.set_job_uid("uid-1");
  report.set_protocol_min(runtime::kProtocol);
  report.set_protocol_max(runtime::kProtocol);
  report.mutable_id()->set_role(node.role);
  report.mutable_id()->set_index(node.index);
  *report.mutable_incarnation() = node.incarnation;
  report.set_revision(membership_.revision());
  report.set_job_digest("digest");
  if (auto* ps = dynamic_cast<PsNode*>(&node)) {
    ps->machine->fillReport(report);
  } else {
    report.mutable_data()->set_samples(config_.samples);
    report.mutable_data()->set_eval_samples(100);
    report.mutable_data()->set_sha256("data");
    auto& worker = static_cast<WorkerNode&>(node);
    if (!isMember(node.index)) report.set_revision(worker.revision);
    worker.machine->fillReport(report);
    if (worker.keeper != nullptr) {
      report.set_keeper_port(1);
      worker.keeper->machine->fillKept(report);
    }
  }
  return report;
}

void World::poke(Node& node, bool urgent) {
  if (!urgent) return;
  const auto* part = dynamic_cast<PsNode*>(&node);
  if (part != nullptr && part->number == runtime::kWorkerKeeper) return poke(*workers_[0], true);
  if (node.calls < 2) {
    sendReport(node);
  } else {
    node.poked = true;
  }
}

void World::sendReport(Node& node) {
  ++node.calls;
  node.poked = false;
  const v1::Incarnation self = node.incarnation;
  const v1::Role role = node.role;
  const std::size_t index = node.index;
  const auto report = std::make_shared<const v1::MemberReport>(reportOf(node));
  const Owner owner = ownerOf(node);
  const Owner home = ownerOf(v1::ROLE_PS, 0);
  const auto find = [this, role, index, self]() -> Node* {
    Node* found =
        role == v1::ROLE_PS ? static_cast<Node*>(ps_[index].get()) : workers_[index].get();
    return found != nullptr && same(found->incarnation, self) ? found : nullptr;
  };
  const auto over = std::make_shared<bool>(false);
  // Null: lost.
  const auto answered = [this, find, report, over](const std::shared_ptr<const v1::View>& view) {
    Node* alive = find();
    if (alive == nullptr || std::exchange(*over, true)) return;
    --alive->calls;
    if (view) onView(*alive, *view);
    // Having said that it leaves, a process ends, whether it was heard or not; the coordinator's
    // ends when the others have left.
    const bool coordinator = alive->role == v1::ROLE_PS && alive->index == 0;
    if (report->leaving() && !belongs(*alive)) {
      const std::size_t index = alive->index;
      if (alive->role == v1::ROLE_WORKER) {
        ++result_.left;
        workers_[index].reset();
      } else {
        ++result_.ps_left;
        ps_[index].reset();
      }
      return;
    }
    if (report->leaving() && !coordinator) {
      (alive->role == v1::ROLE_PS ? ps_done_ : worker_done_)[alive->index] = true;
      return;
    }
    if (alive->calls == 0 || alive->poked) {
      const Duration pause = view ? Duration(0) : Duration(std::chrono::milliseconds(100));
      at(ownerOf(*alive), pause, [this, find] {
        Node* node = find();
        if (node != nullptr && node->calls < 2) sendReport(*node);
      });
    }
  };
  if (rng_.unit() < config_.drop) {
    at(owner, networkDelay(), [answered] { answered(nullptr); });
    return;
  }
  at(home, networkDelay(), [this, owner, report, answered] {
    PsNode* home = ps_[0].get();
    if (home == nullptr || ps_done_[0])
      return at(owner, networkDelay(), [answered] { answered(nullptr); });
    const std::uint64_t ticket = home->next_ticket++;
    home->tickets[ticket] = [this, owner, answered](const v1::View& view) {
      const bool lost = rng_.unit() < config_.drop;
      const auto sent = lost ? nullptr : std::make_shared<const v1::View>(view);
      at(owner, networkDelay(), [answered, sent] { answered(sent); });
    };
    v1::MemberReport told = *report;
    breakReport(told);
    home->coordinator->onReport(told, ticket, now_);
    execute(*home, home->coordinator->takeActions());
  });
  // The caller's deadline, also for calls that were parked in a coordinator that has died.
  at(owner, std::chrono::seconds(4), [answered] { answered(nullptr); });
}

void World::execute(PsNode& node, std::vector<runtime::CoordinatorAction> actions) {
  for (auto& action : actions) {
    if (auto* reply = std::get_if<runtime::ReplyAction>(&action)) {
      const auto it = node.tickets.find(reply->ticket);
      if (it == node.tickets.end()) continue;
      auto answer = std::move(it->second);
      node.tickets.erase(it);
      followEpoch(reply->view);
      answer(reply->view);
    } else if (auto* taken = std::get_if<runtime::TakeReplyAction>(&action)) {
      const auto it = node.takes.find(taken->call);
      if (it == node.takes.end()) continue;
      auto answer = std::move(it->second);
      node.takes.erase(it);
      answer(taken->reply);
    } else if (auto* commit = std::get_if<runtime::CommitAction>(&action)) {
      const v1::Incarnation self = node.incarnation;
      const Duration work = std::chrono::milliseconds(1 + rng_.below(20));
      at(ownerOf(node), work, [this, self, manifest = commit->manifest] {
        PsNode* home = ps_[0].get();
        if (home == nullptr || !same(home->incarnation, self)) return;  // died before the commit
        for (const auto& file : manifest.files) {
          const auto found = files_.find(file.name);
          if (found == files_.end())
            return problem("a manifest names a file that is not there: " + file.name);
          if (found->second.version != manifest.step)
            problem("a manifest names a file of another step");
        }
        checkLedger(manifest);
        manifests_.push_back(manifest);
        manifests_.back().data_samples = config_.samples;
        home->coordinator->onCommitted(manifest, absl::OkStatus(), now_);
        execute(*home, home->coordinator->takeActions());
      });
    } else if (auto* finish = std::get_if<runtime::FinishAction>(&action)) {
      const v1::Incarnation self = node.incarnation;
      const Duration work = std::chrono::milliseconds(rng_.below(10));
      const auto recorded = [this, self] {
        PsNode* home = ps_[0].get();
        if (home == nullptr || !same(home->incarnation, self)) return;
        home->coordinator->onFinishRecorded(absl::OkStatus(), now_);
        execute(*home, home->coordinator->takeActions());
      };
      const bool early = broken(Mutation::kEndToldEarly);
      if (early) at(ownerOf(node), work, recorded);
      at(ownerOf(node), early ? std::chrono::milliseconds(500) : work,
         [this, self, end = *finish, recorded] {
           PsNode* home = ps_[0].get();
           if (home == nullptr || !same(home->incarnation, self)) return;
           finished_ = end.evaluation;
           finished_->set_version(end.steps);
           recorded();
         });
    } else if (auto* evaluation = std::get_if<runtime::EvaluationAction>(&action)) {
      if (evaluation->evaluation.samples() != 100) problem("an evaluation does not cover the set");
      if (evaluation->evaluation.version() == plan_.steps) {
        result_.accuracy_hits = evaluation->evaluation.hits();
      }
    }
  }
  if (node.coordinator->finished(now_)) ps_done_[0] = true;
  const v1::JobProgress progress = node.coordinator->progress(now_);
  if (!progress.outcome().empty()) {
    result_.outcome = progress.outcome();
    result_.lost_steps = progress.lost_steps();
    result_.skipped = progress.skipped();
    result_.spread = progress.spread();
    result_.partial = progress.partial();
    result_.epochs = progress.epoch();
    result_.steps = progress.step();
    if (progress.outcome() == "succeeded" && progress.steps() != plan_.steps)
      problem("the coordinator counts other steps");
    if (progress.outcome() == "stopped") result_.stopped_at = progress.checkpoint_step();
  }
}

void World::onView(Node& node, const v1::View& view) {
  if (view.left() && belongs(node)) problem("a task of the membership is told that it has left");
  if (auto* ps = dynamic_cast<PsNode*>(&node)) {
    followView(*ps, view);
  } else {
    auto& worker = static_cast<WorkerNode&>(node);
    v1::View seen = view;
    breakView(worker, seen);
    worker.machine->onView(seen);
    if (worker.keeper != nullptr) followView(*worker.keeper, seen);
    poke(worker, worker.machine->takeUrgent());
    trainer(worker);
    pump(worker);
  }
}

void World::followView(PsNode& node, const v1::View& view) {
  std::vector<runtime::ps::ChunkAnswer> answers;
  node.machine->onView(view, answers);
  deliver(node, std::move(answers));
  updateNext(node);
  workPs(node);
  poke(node, node.machine->takeUrgent());
}

void World::prepare(PsNode& node, const v1::EpochInfo& epoch) {
  const int self = node.number;
  const std::vector<int> map = runtime::ps::serversOf(startMap(), epoch);
  node.shard->assign(map);
  const auto replicas = replicasOf(epoch, self);
  node.shard->replicate(replicas, epoch.replicated() && self != runtime::kWorkerKeeper,
                        runtime::ps::unguardedChunks(startMap(), epoch, self));
  node.shard->copyParts(runtime::ps::partsToCopy(epoch, self), runtime::ps::followersIn(epoch));
  node.epoch = epoch;
  if (!epoch.fresh() && epoch.restore_manifest().empty())
    return fetchNext(node, epoch, runtime::ps::chunksToFetch(epoch, self));
  const auto version = static_cast<std::size_t>(epoch.first_step());
  for (const auto& chunk : placement_.chunks) {
    const bool replica = std::find(replicas.begin(), replicas.end(), chunk.id) != replicas.end();
    if (map[chunk.id] != self && !replica) continue;
    std::vector<std::vector<float>> slots;
    for (const auto& slot : reference_slots_[version]) slots.push_back(slot[chunk.id]);
    std::vector<float> weights = reference_[version][chunk.id];
    if (!epoch.fresh()) {
      // What the files hold, not what they should hold.
      for (const auto& manifest : manifests_) {
        if (manifest.fileName() != epoch.restore_manifest()) continue;
        for (const auto& file : manifest.files) {
          for (const auto& copy : files_[file.name].chunks) {
            if (copy.chunk != chunk.id) continue;
            weights.assign(copy.weights->begin(), copy.weights->end());
            slots = copy.slots.arrays();
          }
        }
      }
    }
    node.shard->load(chunk.id, epoch.first_step(), weights, slots);
  }
  loadRows(node, epoch);
  prepared(node, epoch);
}

void World::fetchNext(PsNode& node, const v1::EpochInfo& epoch, std::vector<std::uint32_t> left) {
  if (left.empty()) return fetchReplicas(node, epoch);
  const std::uint32_t chunk = left.back();
  const auto own = runtime::ps::chunksToFetch(epoch, node.number);
  const bool replica = std::find(own.begin(), own.end(), chunk) == own.end();
  const Question question = questionFor(node, epoch, chunk, replica);
  if (question.from == node.number) {  // it was its holder, and is here
    left.pop_back();
    return fetchNext(node, epoch, std::move(left));
  }
  ask(node, epoch, question,
      [this, epoch, left, chunk, replica](PsNode& alive, const std::optional<Given>& contents) {
        auto rest = left;
        if (!contents) {
          return later(alive, epoch, std::chrono::milliseconds(50),
                       [this, epoch, rest](PsNode& again) { fetchNext(again, epoch, rest); });
        }
        if (const Status taken = takeOver(alive, chunk, *contents); !taken.ok())
          problem(taken.ToString());
        ++(replica ? result_.replicas : result_.moved);
        rest.pop_back();
        fetchNext(alive, epoch, rest);
      });
}

// On this process, as long as its shard is in the epoch.
void World::later(PsNode& node, const v1::EpochInfo& epoch, Duration delay,
                  std::function<void(PsNode& node)> what) {
  at(ownerOf(node), delay,
     [this, self = node.incarnation, number = node.number, epoch = epoch.epoch(), what] {
       PsNode* alive = server(number);
       if (alive == nullptr || !same(alive->incarnation, self)) return;
       if (alive->shard->epoch() == epoch) what(*alive);
     });
}

void World::ask(PsNode& node, const v1::EpochInfo& epoch, const Question& question,
                std::function<void(PsNode& node, const std::optional<Given>& given)> take) {
  const v1::Incarnation meant = runtime::ps::incarnationOf(epoch, question.from);
  const v1::Incarnation self = node.incarnation;
  const int number = node.number;
  const auto of = std::make_shared<const v1::EpochInfo>(epoch);
  const auto answered = [this, self, number, of, take, over = std::make_shared<bool>(false)](
                            const std::optional<Given>& contents) {
    PsNode* alive = server(number);
    if (alive == nullptr || !same(alive->incarnation, self) || std::exchange(*over, true)) return;
    if (alive->shard->epoch() == of->epoch()) take(*alive, contents);  // else it has ended
  };
  const Owner owner = ownerOf(node);
  const auto fail = [this, owner, answered] {
    at(owner, networkDelay(), [answered] { answered(std::nullopt); });
  };
  if (rng_.unit() < config_.drop) return fail();
  at(ownerOfServer(question.from), networkDelay(),
     [this, owner, answered, fail, meant, question, of] {
       PsNode* source = server(question.from);
       const bool alike = broken(Mutation::kSuccessorAlike);
       if (source == nullptr || (!alike && !same(source->incarnation, meant))) return fail();
       auto contents = give(*source, *of, question);
       if (!contents.ok() || rng_.unit() < config_.drop) return fail();
       at(owner, networkDelay(),
          [answered, given = std::optional<Given>(*std::move(contents))] { answered(given); });
     });
  at(owner, std::chrono::seconds(3), [answered] { answered(std::nullopt); });
}

void World::workPs(PsNode& node) {
  const v1::Incarnation self = node.incarnation;
  const int number = node.number;
  if (auto epoch = node.machine->takePrepare()) {
    const Duration work = std::chrono::milliseconds(rng_.below(30));
    at(ownerOf(node), work, [this, self, number, epoch = *epoch] {
      PsNode* alive = server(number);
      if (alive == nullptr || !same(alive->incarnation, self)) return;
      if (alive->shard->epoch() == epoch.epoch()) prepare(*alive, epoch);
    });
  }
  if (auto epoch = node.machine->takeCopies()) {
    later(node, *epoch, std::chrono::milliseconds(rng_.below(30)),
          [this, epoch = *epoch](PsNode& alive) {
            copyParts(alive, epoch, runtime::ps::partsToCopy(epoch, alive.number));
          });
  }
  while (node.shard->captureNext()) {
    if (rng_.below(4) != 0) continue;
    // The rest later: steps may be taken meanwhile.
    at(ownerOf(node), std::chrono::milliseconds(rng_.below(20)), [this, self, number] {
      PsNode* alive = server(number);
      if (alive != nullptr && same(alive->incarnation, self)) workPs(*alive);
    });
    break;
  }
  while (auto snapshot = node.shard->takeSnapshot()) {
    for (const auto& copy : snapshot->chunks) {
      const auto version = static_cast<std::size_t>(snapshot->version);
      bool equal = plausible(snapshot->version, copy.chunk, *copy.weights);
      for (std::size_t s = 0; s < copy.slots.size(); ++s) {
        equal =
            equal && (config_.tickets || copy.slots[s] == reference_slots_[version][s][copy.chunk]);
      }
      if (!equal)
        problem(fmt::format("snapshot of step {} differs from the reference", snapshot->version));
    }
    const std::size_t pieces = snapshot->tables.size();
    const std::size_t read = readRows(*snapshot, 0, pieces == 0 ? 0 : rng_.below(pieces + 1));
    v1::ShardFile file;
    file.set_epoch(snapshot->epoch);
    file.set_version(snapshot->version);
    file.set_base(snapshot->base.manifest);
    file.set_name(fmt::format("ps-{}.step-{}.e{}.i{}", number, snapshot->version, snapshot->epoch,
                              self.start()));
    if (broken(Mutation::kWrittenClaimed)) {
      node.machine->onWritten(file);
      poke(node, node.machine->takeUrgent());
    }
    at(ownerOf(node), std::chrono::milliseconds(1 + rng_.below(60)),
       [this, self, number, file, read, snapshot = std::move(*snapshot)]() mutable {
         PsNode* alive = server(number);
         if (alive == nullptr || !same(alive->incarnation, self)) return;  // died before the rename
         readRows(snapshot, read, snapshot.tables.size());
         checkRows(snapshot);
         files_[file.name()] = snapshot;
         if (broken(Mutation::kWrittenClaimed)) return;
         alive->machine->onWritten(file);
         poke(*alive, alive->machine->takeUrgent());
       });
  }
}

void World::deliver(PsNode& node, std::vector<runtime::ps::ChunkAnswer> answers) {
  for (auto& answer : answers) {
    const auto it = node.calls_in.find(answer.call);
    if (it == node.calls_in.end()) continue;
    auto reply = std::move(it->second);
    node.calls_in.erase(it);
    reply(answer.header, answer.payload);
  }
  if (!answers.empty()) workPs(node);
}

// Chunks that wait for the norm of their step are updated one after the other; views, requests and
// the end of the epoch may come in between.
void World::updateNext(PsNode& node) {
  if (config_.clip_norm <= 0 || std::exchange(node.updating, true)) return;
  const v1::Incarnation self = node.incarnation;
  const int number = node.number;
  at(ownerOf(node), std::chrono::microseconds(rng_.below(400)), [this, self, number] {
    PsNode* alive = server(number);
    if (alive == nullptr || !same(alive->incarnation, self)) return;
    alive->updating = false;
    std::vector<runtime::ps::ChunkAnswer> answers;
    if (!alive->shard->updateNext(answers)) return;
    forward(*alive);
    deliver(*alive, std::move(answers));
    updateNext(*alive);
  });
}

}  // namespace trainyard::sim
