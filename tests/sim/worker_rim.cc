// What stands around a worker's state machine: calls to servers and coordinator, the trainer.
#include <algorithm>
#include <cmath>
#include <utility>

#include "fmt/format.h"
#include "tests/sim/nodes.h"

namespace trainyard::sim {
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
    v1::TakeRequest asked = request;
    breakQuestion(asked);
    home->coordinator->onTake(asked, call, now_);
    execute(*home, home->coordinator->takeActions());
  });
  at(owner, std::chrono::seconds(4), fail);
}

void World::sendChunk(WorkerNode& node, const runtime::ps::Send& given) {
  runtime::ps::Send send = given;
  runtime::ps::RowBytes rows;
  if (isPart(send.chunk)) rows = node.rows->bodyOf(send);
  sendBody(node, send, rows);
}

void World::sendBody(WorkerNode& node, const runtime::ps::Send& wanted,
                     const runtime::ps::RowBytes& rows) {
  const auto send = std::make_shared<const runtime::ps::Send>(wanted);
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
      onChunkReply(*alive, *send, transport, header, std::move(payload));
  };
  const Owner owner = ownerOf(node);
  const auto fail = [this, owner, replied] {
    at(owner, networkDelay(), [replied] { replied(absl::UnavailableError("lost"), {}, nullptr); });
  };
  std::vector<float> payload;
  if (send->with_payload && !isPart(send->chunk))
    payload = gradient({node.turn->first_position, node.turn->samples}, send->chunk);
  if (rng_.unit() < config_.drop) {
    breakCutPush(*send, payload);
    return fail();
  }
  const int copies = rng_.unit() < config_.duplicate ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    const Owner to = ownerOf(v1::ROLE_PS, static_cast<std::size_t>(send->ps));
    at(to, networkDelay() + lateness(copy),
       [this, owner, send, payload, rows, replied, fail, find] {
         PsNode* server = ps_[static_cast<std::size_t>(send->ps)].get();
         if (server == nullptr || ps_done_[static_cast<std::size_t>(send->ps)]) return fail();
         at(owner, networkDelay(), [find, send, this] {
           if (WorkerNode* alive = send->header.receipt() ? find() : nullptr) {
             alive->machine->onReceived(send->chunk, send->attempt);
             pump(*alive);
           }
         });
         const auto call = server->next_call++;
         server->calls_in[call] = [this, owner, send, replied](
                                      v1::ChunkReplyHeader header,
                                      std::shared_ptr<const runtime::ps::Weights> weights) {
           breakRows(*send, header);
           const bool lost = rng_.unit() < config_.drop;
           // What is on its way is a copy of what the server held when it answered.
           auto sent = weights == nullptr ? nullptr
                                          : std::make_shared<const std::vector<float>>(
                                                weights->begin(), weights->end());
           at(owner, networkDelay(), [replied, header = std::move(header), sent, lost] {
             replied(lost ? Status(absl::UnavailableError("lost")) : absl::OkStatus(), header,
                     sent);
           });
         };
         v1::ChunkRequestHeader header = send->header;
         breakPush(*server, header);
         std::vector<runtime::ps::ChunkAnswer> answers;
         if (isPart(send->chunk)) {
           server->shard->onRowRequest(header, rows.span(), call, now_, answers);
         } else {
           server->shard->onRequest(
               header, send->with_payload ? std::make_unique<VectorPayload>(payload) : nullptr,
               call, now_, answers);
         }
         forward(*server);
         deliver(*server, std::move(answers));
         poke(*server, server->shard->takeUrgent());
         updateNext(*server);
       });
  }
  // A server that dies breaks the connection; without that the caller's deadline would do.
  at(owner, std::chrono::seconds(3),
     [replied] { replied(absl::DeadlineExceededError("no answer"), {}, nullptr); });
}

void World::storeLater(WorkerNode& node, const runtime::ps::Send& send,
                       std::function<void(WorkerNode&)> put) {
  const v1::Incarnation self = node.incarnation;
  const std::size_t index = node.index;
  const bool cut = rng_.unit() < config_.drop;
  at(ownerOf(node), std::chrono::microseconds(rng_.below(500)),
     [this, self, index, send, put = std::move(put), cut] {
       WorkerNode* alive = workers_[index].get();
       if (alive == nullptr || !same(alive->incarnation, self)) return;
       if (!cut) put(*alive);
       if (cut && !broken(Mutation::kCutWeightsCount)) {
         alive->machine->onCut(send.chunk, send.attempt, absl::UnavailableError("lost"), now_);
       } else {
         alive->machine->onStored(send.chunk, send.attempt);
       }
       trainer(*alive);
       pump(*alive);
       poke(*alive, alive->machine->takeUrgent());
     });
}

void World::onChunkReply(WorkerNode& node, const runtime::ps::Send& send, const Status& transport,
                         const v1::ChunkReplyHeader& header,
                         std::shared_ptr<const std::vector<float>> payload) {
  if (isPart(send.chunk)) return onRowReply(node, send, transport, header, payload);
  if (node.machine->onReply(send.chunk, send.attempt, transport, header, now_)) {
    if (upToDate(node, header.version()) && !plausible(header.version(), send.chunk, *payload)) {
      problem(fmt::format("worker {} got a wrong version {} of chunk {}", node.index,
                          header.version(), send.chunk));
    }
    std::vector<float>& stored = node.weights[send.chunk];
    stored.resize(payload->size());
    std::copy_n(payload->begin(), payload->size() / 2, stored.begin());
    storeLater(node, send,
               [send, payload](WorkerNode& alive) { alive.weights[send.chunk] = *payload; });
  }
  trainer(node);
  pump(node);
}

// The worker knows the newest epoch, or the version came before it: not of a future that a
// roll-back has made void.
bool World::upToDate(const WorkerNode& node, std::int64_t version) const {
  const std::int64_t epoch = node.machine->epoch();
  return epoch >= plan_epoch_ || (epoch >= lineage_ && version <= plan_.first_step);
}

void World::trainer(WorkerNode& node) {
  using StepState = runtime::ps::WorkerMachine::StepState;
  if (node.turn && !node.computing && node.turn->kind == runtime::Turn::Kind::kTrain) {
    const auto state = node.machine->stepState();
    if (state == StepState::kPending) return;
    const auto end = node.machine->endStep();
    // A part may have taken the step with other gradients than its neighbours do under the next
    // epoch, where places are given anew.
    const bool uneven = config_.backup_workers > 0 && epoch_starts_.contains(node.turn->step);
    if (uneven) pushed_rows_.leave(node.turn->first_position);
    if (end.too_late) pushed_rows_.drop(node.turn->first_position);
    if (state == StepState::kComplete) {
      if (config_.clip_norm > 0) {
        const std::optional<double> norm = end.gradient_norm;
        const double want = reference_norms_[static_cast<std::size_t>(node.turn->step)];
        // After a change of epoch the server may have loaded the version, and know no norm. And
        // while others take the last step, which is too short for this rank, it sends the version
        // before from a buffer without a norm.
        const bool may_lack =
            node.machine->epoch() != node.turn->epoch || node.turn->step + 2 == plan_.steps;
        if (norm ? std::abs(*norm / want - 1) > 1e-14 : !may_lack) {
          problem(fmt::format("worker {} was told norm {} of step {}, expected {}", node.index,
                              norm.value_or(-1), node.turn->step, want));
        }
      }
      if (upToDate(node, node.turn->step + 1)) {
        pushed_rows_.finish(node.turn->first_position);
        used_.push_back({node.turn->epoch,
                         end.step,
                         node.turn->rank,
                         {node.turn->first_position, node.turn->samples}});
      }
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
      (*turn)->kind == runtime::Turn::Kind::kStopped ||
      (*turn)->kind == runtime::Turn::Kind::kLeft) {
    return;
  }
  node.turn = **turn;
  node.computing = true;
  node.lacks_rows = node.void_rows = false;
  const bool train = node.turn->kind == runtime::Turn::Kind::kTrain;
  if (train && tables_ != nullptr) beginRows(node);
  computed_ += train;
  if (!config_.tickets && upToDate(node, node.turn->step) &&
      node.weights != reference_[static_cast<std::size_t>(node.turn->step)]) {
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
    if (alive->lacks_rows) return readRows(*alive);
    endPass(*alive);
  });
}

void World::endPass(WorkerNode& node) {
  node.computing = false;
  if (node.turn->kind == runtime::Turn::Kind::kTrain) {
    if (tables_ != nullptr) bringRows(node);
    node.machine->lossReady({.loss_sum = 1.0});
  } else {
    const std::int64_t n =
        100 / node.turn->ranks + (node.turn->rank < 100 % node.turn->ranks ? 1 : 0);
    node.machine->evaluated(n / 2, n, 0.5 * static_cast<double>(n));
    node.turn.reset();
  }
  trainer(node);
  pump(node);
  poke(node, node.machine->takeUrgent());
}

}  // namespace trainyard::sim
