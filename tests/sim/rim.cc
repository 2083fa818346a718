// What stands around the state machines: links, calls, files, the trainer. Closures never keep a
// node alive: a message to a process that is gone is lost, and its sender learns of it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "fmt/format.h"
#include "tests/sim/nodes.h"

namespace trainyard::sim {
namespace {

class VectorPayload : public runtime::ps::GradientPayload {
 public:
  explicit VectorPayload(std::vector<float> values) : values_(std::move(values)) {}
  std::size_t sizeBytes() const override { return values_.size() * sizeof(float); }
  void copyTo(std::span<float> out) const override {
    std::copy(values_.begin(), values_.end(), out.begin());
  }
  void addTo(std::span<float> acc) const override {
    for (std::size_t i = 0; i < acc.size(); ++i) acc[i] += values_[i];
  }

 private:
  std::vector<float> values_;
};

bool same(const v1::Incarnation& a, const v1::Incarnation& b) {
  return a.created() == b.created() && a.start() == b.start();
}

}  // namespace

v1::MemberReport World::reportOf(Node& node) {
  v1::MemberReport report;
  report.set_job_uid("uid-1");
  report.set_protocol_min(runtime::kProtocol);
  report.set_protocol_max(runtime::kProtocol);
  report.mutable_id()->set_role(node.role);
  report.mutable_id()->set_index(node.index);
  *report.mutable_incarnation() = node.incarnation;
  report.set_revision(1);
  report.set_job_digest("digest");
  if (auto* ps = dynamic_cast<PsNode*>(&node)) {
    ps->machine->fillReport(report);
  } else {
    report.mutable_data()->set_samples(config_.samples);
    report.mutable_data()->set_eval_samples(100);
    report.mutable_data()->set_sha256("data");
    static_cast<WorkerNode&>(node).machine->fillReport(report);
  }
  return report;
}

void World::poke(Node& node, bool urgent) {
  if (!urgent) return;
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
  const v1::MemberReport report = reportOf(node);
  const Owner owner = ownerOf(node);
  const Owner home = ownerOf(v1::ROLE_PS, 0);
  const auto find = [this, role, index, self]() -> Node* {
    Node* found =
        role == v1::ROLE_PS ? static_cast<Node*>(ps_[index].get()) : workers_[index].get();
    return found != nullptr && same(found->incarnation, self) ? found : nullptr;
  };
  const auto over = std::make_shared<bool>(false);
  const auto answered = [this, find, report, over](std::optional<v1::View> view) {
    Node* alive = find();
    if (alive == nullptr || std::exchange(*over, true)) return;
    --alive->calls;
    if (view) onView(*alive, *view);
    // Having said that it leaves, a process ends, whether it was heard or not; the coordinator's
    // ends when the others have left.
    const bool coordinator = alive->role == v1::ROLE_PS && alive->index == 0;
    if (report.leaving() && !coordinator) {
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
    at(owner, networkDelay(), [answered] { answered(std::nullopt); });
    return;
  }
  at(home, networkDelay(), [this, owner, report, answered] {
    PsNode* home = ps_[0].get();
    if (home == nullptr || ps_done_[0])
      return at(owner, networkDelay(), [answered] { answered(std::nullopt); });
    const std::uint64_t ticket = home->next_ticket++;
    home->tickets[ticket] = [this, owner, answered](const v1::View& view) {
      const bool lost = rng_.unit() < config_.drop;
      at(owner, networkDelay(),
         [answered, view, lost] { answered(lost ? std::nullopt : std::optional<v1::View>(view)); });
    };
    home->coordinator->onReport(report, ticket, now_);
    execute(*home, home->coordinator->takeActions());
  });
  // The caller's deadline, also for calls that were parked in a coordinator that has died.
  at(owner, std::chrono::seconds(4), [answered] { answered(std::nullopt); });
}

void World::execute(PsNode& node, std::vector<runtime::CoordinatorAction> actions) {
  for (auto& action : actions) {
    if (auto* reply = std::get_if<runtime::ReplyAction>(&action)) {
      const auto it = node.tickets.find(reply->ticket);
      if (it == node.tickets.end()) continue;
      auto answer = std::move(it->second);
      node.tickets.erase(it);
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
        manifests_.push_back(manifest);
        manifests_.back().data_samples = config_.samples;
        home->coordinator->onCommitted(manifest, absl::OkStatus(), now_);
        execute(*home, home->coordinator->takeActions());
      });
    } else if (auto* finish = std::get_if<runtime::FinishAction>(&action)) {
      const v1::Incarnation self = node.incarnation;
      const Duration work = std::chrono::milliseconds(rng_.below(10));
      at(ownerOf(node), work, [this, self, end = *finish] {
        PsNode* home = ps_[0].get();
        if (home == nullptr || !same(home->incarnation, self)) return;
        finished_ = end.evaluation;
        finished_->set_version(end.steps);
        home->coordinator->onFinishRecorded(absl::OkStatus(), now_);
        execute(*home, home->coordinator->takeActions());
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
  if (auto* ps = dynamic_cast<PsNode*>(&node)) {
    std::vector<runtime::ps::ChunkAnswer> answers;
    ps->machine->onView(view, answers);
    deliver(*ps, std::move(answers));
    updateNext(*ps);
    workPs(*ps);
    poke(*ps, ps->machine->takeUrgent());
  } else {
    auto& worker = static_cast<WorkerNode&>(node);
    worker.machine->onView(view);
    poke(worker, worker.machine->takeUrgent());
    trainer(worker);
    pump(worker);
  }
}

void World::workPs(PsNode& node) {
  const v1::Incarnation self = node.incarnation;
  const std::size_t index = node.index;
  if (auto epoch = node.machine->takePrepare()) {
    const Duration work = std::chrono::milliseconds(rng_.below(30));
    at(ownerOf(node), work, [this, self, index, epoch = *epoch] {
      PsNode* alive = ps_[index].get();
      if (alive == nullptr || !same(alive->incarnation, self)) return;
      if (alive->shard->epoch() != epoch.epoch()) return;
      for (const auto& chunk : placement_.chunks) {
        if (chunk.ps != static_cast<int>(index)) continue;
        if (!epoch.fresh() && epoch.restore_manifest().empty()) continue;
        const auto version = static_cast<std::size_t>(epoch.first_step());
        std::vector<std::vector<float>> slots;
        for (const auto& slot : reference_slots_[version]) slots.push_back(slot[chunk.id]);
        std::vector<float> weights = reference_[version][chunk.id];
        if (!epoch.fresh()) {
          // What the files hold, not what they should hold.
          for (const auto& manifest : manifests_) {
            if (manifest.fileName() != epoch.restore_manifest()) continue;
            for (const auto& file : manifest.files) {
              for (const auto& copy : files_[file.name].chunks) {
                if (copy.chunk == chunk.id) weights = copy.weights, slots = copy.slots;
              }
            }
          }
        }
        alive->shard->load(chunk.id, epoch.first_step(), weights, slots);
      }
      alive->machine->onPrepared(epoch, absl::OkStatus());
      poke(*alive, alive->machine->takeUrgent());
      workPs(*alive);
    });
  }
  while (auto snapshot = node.shard->takeSnapshot()) {
    for (const auto& copy : snapshot->chunks) {
      const auto version = static_cast<std::size_t>(snapshot->version);
      bool equal = plausible(snapshot->version, copy.chunk, copy.weights);
      for (std::size_t s = 0; s < copy.slots.size(); ++s) {
        equal =
            equal && (config_.tickets || copy.slots[s] == reference_slots_[version][s][copy.chunk]);
      }
      if (!equal)
        problem(fmt::format("snapshot of step {} differs from the reference", snapshot->version));
    }
    at(ownerOf(node), std::chrono::milliseconds(1 + rng_.below(60)),
       [this, self, index, snapshot = std::move(*snapshot)] {
         PsNode* alive = ps_[index].get();
         if (alive == nullptr || !same(alive->incarnation, self)) return;  // died before the rename
         v1::ShardFile file;
         file.set_epoch(snapshot.epoch);
         file.set_version(snapshot.version);
         file.set_name(fmt::format("ps-{}.step-{}.e{}.i{}", index, snapshot.version, snapshot.epoch,
                                   self.start()));
         files_[file.name()] = snapshot;
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
  const std::size_t index = node.index;
  at(ownerOf(node), std::chrono::microseconds(rng_.below(400)), [this, self, index] {
    PsNode* alive = ps_[index].get();
    if (alive == nullptr || !same(alive->incarnation, self)) return;
    alive->updating = false;
    std::vector<runtime::ps::ChunkAnswer> answers;
    if (!alive->shard->updateNext(answers)) return;
    deliver(*alive, std::move(answers));
    updateNext(*alive);
  });
}

void World::pump(WorkerNode& node) {
  for (const auto& send : node.machine->takeSends(now_)) sendChunk(node, send);
  if (const auto question = node.machine->takeAsk(now_)) sendAsk(node, *question);
  const auto wake = node.machine->wakeAt();
  if (!wake || *wake <= now_ || node.wake_planned) return;
  node.wake_planned = true;
  const v1::Incarnation self = node.incarnation;
  const std::size_t index = node.index;
  at(ownerOf(node), *wake - now_, [this, self, index] {
    WorkerNode* alive = workers_[index].get();
    if (alive == nullptr || !same(alive->incarnation, self)) return;
    alive->wake_planned = false;
    pump(*alive);
  });
}

void World::sendAsk(WorkerNode& node, const v1::TakeRequest& request) {
  const v1::Incarnation self = node.incarnation;
  const std::size_t index = node.index;
  const Owner owner = ownerOf(node);
  const auto answered = [this, self, index, request, over = std::make_shared<bool>(false)](
                            const Status& status, const v1::TakeReply& reply) {
    WorkerNode* alive = workers_[index].get();
    if (alive == nullptr || !same(alive->incarnation, self) || std::exchange(*over, true)) return;
    alive->machine->onTake(request, status, reply, now_);
    trainer(*alive);
    pump(*alive);
    poke(*alive, alive->machine->takeUrgent());
  };
  const auto fail = [answered] { answered(absl::UnavailableError("lost"), {}); };
  if (rng_.unit() < config_.drop) return at(owner, networkDelay(), fail);
  at(ownerOf(v1::ROLE_PS, 0), networkDelay(), [this, owner, request, answered, fail] {
    PsNode* home = ps_[0].get();
    if (home == nullptr || ps_done_[0]) return at(owner, networkDelay(), fail);
    const std::uint64_t call = home->next_ticket++;
    home->takes[call] = [this, owner, answered, fail](const v1::TakeReply& reply) {
      if (rng_.unit() < config_.drop) return at(owner, networkDelay(), fail);
      at(owner, networkDelay(), [answered, reply] { answered(absl::OkStatus(), reply); });
    };
    home->coordinator->onTake(request, call, now_);
    execute(*home, home->coordinator->takeActions());
  });
  at(owner, std::chrono::seconds(4), fail);
}

void World::sendChunk(WorkerNode& node, const runtime::ps::Send& send) {
  const v1::Incarnation self = node.incarnation;
  const std::size_t index = node.index;
  const auto find = [this, self, index]() -> WorkerNode* {
    WorkerNode* alive = workers_[index].get();
    return alive != nullptr && same(alive->incarnation, self) ? alive : nullptr;
  };
  const auto replied = [this, find, send](const Status& transport,
                                          const v1::ChunkReplyHeader& header,
                                          std::shared_ptr<const std::vector<float>> payload) {
    if (WorkerNode* alive = find())
      onChunkReply(*alive, send, transport, header, std::move(payload));
  };
  const Owner owner = ownerOf(node);
  const auto fail = [this, owner, replied] {
    at(owner, networkDelay(), [replied] { replied(absl::UnavailableError("lost"), {}, nullptr); });
  };
  if (rng_.unit() < config_.drop) return fail();
  std::vector<float> payload;
  if (send.with_payload)
    payload = gradient({node.turn->first_position, node.turn->samples}, send.chunk);
  const int copies = rng_.unit() < config_.duplicate ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    const Owner to = ownerOf(v1::ROLE_PS, static_cast<std::size_t>(send.ps));
    at(to, networkDelay(), [this, owner, send, payload, replied, fail, find] {
      PsNode* server = ps_[static_cast<std::size_t>(send.ps)].get();
      if (server == nullptr || ps_done_[static_cast<std::size_t>(send.ps)]) return fail();
      at(owner, networkDelay(), [find, send, this] {
        if (WorkerNode* alive = send.header.receipt() ? find() : nullptr) {
          alive->machine->onReceived(send.chunk, send.attempt);
          pump(*alive);
        }
      });
      const auto call = server->next_call++;
      server->calls_in[call] = [this, owner, replied](
                                   const v1::ChunkReplyHeader& header,
                                   std::shared_ptr<const std::vector<float>> weights) {
        const bool lost = rng_.unit() < config_.drop;
        // What is on its way is a copy of what the server held when it answered.
        auto sent =
            weights == nullptr ? nullptr : std::make_shared<const std::vector<float>>(*weights);
        at(owner, networkDelay(), [replied, header, sent, lost] {
          replied(lost ? Status(absl::UnavailableError("lost")) : absl::OkStatus(), header, sent);
        });
      };
      std::vector<runtime::ps::ChunkAnswer> answers;
      server->shard->onRequest(
          send.header, send.with_payload ? std::make_unique<VectorPayload>(payload) : nullptr, call,
          now_, answers);
      deliver(*server, std::move(answers));
      poke(*server, server->shard->takeUrgent());
      updateNext(*server);
    });
  }
  // A server that dies breaks the connection; without that the caller's deadline would do.
  at(owner, std::chrono::seconds(3),
     [replied] { replied(absl::DeadlineExceededError("no answer"), {}, nullptr); });
}

void World::onChunkReply(WorkerNode& node, const runtime::ps::Send& send, const Status& transport,
                         const v1::ChunkReplyHeader& header,
                         std::shared_ptr<const std::vector<float>> payload) {
  if (node.machine->onReply(send.chunk, send.attempt, transport, header, now_)) {
    if (!plausible(header.version(), send.chunk, *payload)) {
      problem(fmt::format("worker {} got a wrong version {} of chunk {}", node.index,
                          header.version(), send.chunk));
    }
    node.weights[send.chunk] = *payload;
    // The copy takes a while; views may come in between.
    const v1::Incarnation self = node.incarnation;
    const std::size_t index = node.index;
    at(ownerOf(node), std::chrono::microseconds(rng_.below(500)), [this, self, index, send] {
      WorkerNode* alive = workers_[index].get();
      if (alive == nullptr || !same(alive->incarnation, self)) return;
      alive->machine->onStored(send.chunk, send.attempt);
      trainer(*alive);
      pump(*alive);
      poke(*alive, alive->machine->takeUrgent());
    });
  }
  trainer(node);
  pump(node);
}

void World::trainer(WorkerNode& node) {
  using StepState = runtime::ps::WorkerMachine::StepState;
  if (node.turn && !node.computing && node.turn->kind == runtime::Turn::Kind::kTrain) {
    const auto state = node.machine->stepState();
    if (state == StepState::kPending) return;
    const auto end = node.machine->endStep();
    if (state == StepState::kComplete) {
      if (config_.clip_norm > 0) {
        const std::optional<double> norm = end.gradient_norm;
        const double want = reference_norms_[static_cast<std::size_t>(node.turn->step)];
        // After a change of epoch the server may have loaded the version, and know no norm.
        const bool may_lack = node.machine->epoch() != node.turn->epoch;
        if (norm ? std::abs(*norm / want - 1) > 1e-14 : !may_lack) {
          problem(fmt::format("worker {} was told norm {} of step {}, expected {}", node.index,
                              norm.value_or(-1), node.turn->step, want));
        }
      }
      used_.push_back({node.turn->epoch,
                       end.step,
                       node.turn->rank,
                       {node.turn->first_position, node.turn->samples}});
    }
    node.turn.reset();
    poke(node, node.machine->takeUrgent());
  }
  if (node.turn) return;
  auto turn = node.machine->turn();
  if (!turn.ok()) {
    if (result_.outcome != "failed") problem(turn.status().ToString());
    return;
  }
  if (!turn->has_value() || (*turn)->kind == runtime::Turn::Kind::kDone ||
      (*turn)->kind == runtime::Turn::Kind::kStopped) {
    return;
  }
  node.turn = **turn;
  node.computing = true;
  const bool train = node.turn->kind == runtime::Turn::Kind::kTrain;
  computed_ += train;
  if (!config_.tickets && node.weights != reference_[static_cast<std::size_t>(node.turn->step)]) {
    problem(
        fmt::format("worker {} starts step {} from wrong weights", node.index, node.turn->step));
  }
  const v1::Incarnation self = node.incarnation;
  const std::size_t index = node.index;
  const auto find = [this, self, index]() -> WorkerNode* {
    WorkerNode* alive = workers_[index].get();
    return alive != nullptr && same(alive->incarnation, self) ? alive : nullptr;
  };
  // Without common steps one worker is slower than the others.
  const std::uint64_t slow = !sharesSteps() && index == 1 ? 4 : 1;
  const Duration whole = std::chrono::microseconds(slow * (500 + rng_.below(6000)));
  if (train) {
    for (std::uint32_t c = 0; c < placement_.chunks.size(); ++c) {
      const Duration part = whole * (c + 1) / (placement_.chunks.size() + 1);
      at(ownerOf(node), part, [this, find, c, turn = *node.turn] {
        WorkerNode* alive = find();
        if (alive == nullptr || !alive->turn || alive->turn->step != turn.step ||
            alive->turn->first_position != turn.first_position)
          return;
        const std::int64_t step = turn.step;
        if (config_.nan_at && *config_.nan_at == step && alive->index == 1) {
          alive->machine->abort(step, "v0", "the gradient is not finite");
        } else {
          alive->machine->gradientReady(c);
        }
        pump(*alive);
        poke(*alive, alive->machine->takeUrgent());
      });
    }
  }
  at(ownerOf(node), whole, [this, find] {
    WorkerNode* alive = find();
    if (alive == nullptr || !alive->turn) return;
    alive->computing = false;
    if (alive->turn->kind == runtime::Turn::Kind::kTrain) {
      alive->machine->lossReady(1.0);
    } else {
      const std::int64_t n =
          100 / alive->turn->ranks + (alive->turn->rank < 100 % alive->turn->ranks ? 1 : 0);
      alive->machine->evaluated(n / 2, n, 0.5 * static_cast<double>(n));
      alive->turn.reset();
    }
    trainer(*alive);
    pump(*alive);
    poke(*alive, alive->machine->takeUrgent());
  });
}

}  // namespace trainyard::sim
