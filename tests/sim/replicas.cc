// Between the servers, or an only one and the first worker: replicas of chunks, and the steps that
// they take.
#include <utility>

#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_moves.h"
#include "tests/sim/nodes.h"

namespace trainyard::sim {
std::vector<int> World::startMap() const {
  return runtime::initialMap(runtime::chunkLoads(placement_, config_.tables), placement_.num_ps).ps;
}

int World::serverOf(const v1::EpochInfo& epoch, std::uint32_t chunk) const {
  return runtime::ps::serversOf(startMap(), epoch)[chunk];
}

std::vector<std::uint32_t> World::replicasOf(const v1::EpochInfo& epoch, int ps) const {
  return runtime::ps::chunksToReplicate(startMap(), epoch, ps);
}

// Its own chunks are all here; the replicas come after them.
void World::fetchReplicas(PsNode& node, const v1::EpochInfo& epoch) {
  if (std::exchange(node.replicas_fetched, epoch.epoch()) == epoch.epoch())
    return prepared(node, epoch);
  node.shard->adoptReplicas();
  fetchNext(node, epoch, replicasOf(epoch, node.number));
}

World::Question World::questionFor(const PsNode& node, const v1::EpochInfo& epoch,
                                   std::uint32_t chunk, bool replica) const {
  Question question{.chunk = chunk, .follower = node.number};
  question.from = replica ? runtime::ps::replicaSource(startMap(), epoch, chunk, isPart(chunk))
                          : epoch.former_ps(static_cast<int>(chunk));
  if (replica || isPart(chunk)) question.known = node.shard->replicaVersion(chunk);
  if (!isPart(chunk)) return question;
  const std::uint64_t mark =
      node.shard->copyMark(chunk, runtime::ps::incarnationOf(epoch, question.from));
  if (mark != 0) question.follows = mark;
  return question;
}

// While training goes on; then what has come meanwhile, again and again.
void World::copyParts(PsNode& node, const v1::EpochInfo& epoch, std::vector<std::uint32_t> left) {
  if (left.empty()) {
    node.machine->onCopied(epoch);
    poke(node, node.machine->takeUrgent());
    return later(node, epoch, std::chrono::milliseconds(20 + rng_.below(200)),
                 [this, epoch](PsNode& again) {
                   copyParts(again, epoch, runtime::ps::partsToCopy(epoch, again.number));
                 });
  }
  const std::uint32_t part = left.back();
  Question question{.chunk = part, .from = serverOf(epoch, part), .follower = node.number};
  question.follows = node.shard->copyMark(part, runtime::ps::incarnationOf(epoch, question.from));
  ask(node, epoch, question,
      [this, epoch, left, part](PsNode& alive, const std::optional<Given>& given) {
        auto rest = left;
        if (!given) {
          return later(alive, epoch, std::chrono::milliseconds(50),
                       [this, epoch, rest](PsNode& again) { copyParts(again, epoch, rest); });
        }
        const Status taken = alive.shard->takeOverCopy(
            epoch.epoch(), part, std::get<runtime::rows::GivenPart>(*given),
            runtime::ps::incarnationOf(epoch, serverOf(epoch, part)));
        if (!taken.ok()) problem(taken.ToString());
        ++result_.copied;
        rest.pop_back();
        copyParts(alive, epoch, rest);
      });
}

StatusOr<World::Given> World::give(PsNode& node, const v1::EpochInfo& epoch,
                                   const Question& question) const {
  const std::uint32_t chunk = question.chunk;
  if (isPart(chunk)) {
    TY_ASSIGN_OR_RETURN(
        auto part, question.follows ? node.shard->giveFollower(epoch.epoch(), chunk,
                                                               question.follower, *question.follows)
                                    : node.shard->givePart(epoch.epoch(), chunk, question.known));
    breakContents(part);
    return Given(std::move(part));
  }
  TY_ASSIGN_OR_RETURN(auto given, node.shard->give(epoch.epoch(), chunk, question.known));
  breakContents(given);
  return Given(std::move(given));
}

Status World::takeOver(PsNode& node, std::uint32_t chunk, const Given& given) {
  if (const auto* part = std::get_if<runtime::rows::GivenPart>(&given))
    return node.shard->takeOverPart(chunk, *part);
  return node.shard->takeOver(chunk, std::get<runtime::ps::GivenChunk>(given));
}

void World::prepared(PsNode& node, const v1::EpochInfo& epoch) {
  node.machine->onPrepared(epoch, absl::OkStatus());
  poke(node, node.machine->takeUrgent());
  workPs(node);
}

void World::forward(PsNode& node) {
  for (const auto& update : node.shard->takeUpdates()) {
    if (!broken(Mutation::kReplicaForgets)) sendUpdate(node, update);
    if (broken(Mutation::kReplicaForgets) || broken(Mutation::kConfirmsEarly))
      replicated(node, update.header);
  }
}

void World::replicated(PsNode& node, const v1::ChunkRequestHeader& update) {
  std::vector<runtime::ps::ChunkAnswer> answers;
  node.shard->onReplicated(update, answers);
  forward(node);
  deliver(node, std::move(answers));
}

void World::sendUpdate(PsNode& node, runtime::ps::ReplicaUpdate update) {
  v1::ChunkRequestHeader& header = update.header;
  const int target = runtime::ps::ReplicaTargets(node.epoch).of(node.number, header.chunk());
  *header.mutable_server() = runtime::ps::incarnationOf(node.epoch, target);
  header.set_holder(static_cast<std::uint32_t>(node.number));
  const v1::Incarnation self = node.incarnation;
  const int number = node.number;
  const Owner owner = ownerOf(node);
  const auto find = [this, number, self, epoch = header.epoch()]() -> PsNode* {
    PsNode* alive = server(number);
    const bool here = alive != nullptr && same(alive->incarnation, self);
    return here && alive->shard->epoch() == epoch ? alive : nullptr;
  };
  const auto answered = [this, find, update, over = std::make_shared<bool>(false)](bool taken) {
    PsNode* alive = find();
    if (alive == nullptr || std::exchange(*over, true)) return;
    if (taken) return replicated(*alive, update.header);
    at(ownerOf(*alive), std::chrono::milliseconds(50), [this, find, update] {
      if (PsNode* again = find()) sendUpdate(*again, update);
    });
  };
  const auto later = [this, owner, answered](bool taken) {
    at(owner, networkDelay(), [answered, taken] { answered(taken); });
  };
  at(owner, std::chrono::seconds(3), [answered] { answered(false); });
  if (rng_.unit() < config_.drop) return later(false);
  const int copies = rng_.unit() < config_.duplicate ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    at(ownerOfServer(target), networkDelay() + lateness(copy), [this, target, update, later] {
      PsNode* keeper = server(target);
      if (keeper == nullptr) return later(false);
      const auto call = keeper->next_call++;
      keeper->calls_in[call] = [this, later](const v1::ChunkReplyHeader& reply,
                                             std::shared_ptr<const runtime::ps::Weights>) {
        later(reply.code() == v1::CHUNK_OK && rng_.unit() >= config_.drop);
      };
      std::vector<runtime::ps::ChunkAnswer> answers;
      if (update.mean == nullptr) {
        keeper->shard->onRowRequest(update.header, update.rows.span(), call, now_, answers);
      } else {
        std::vector<float> mean(update.mean->begin(), update.mean->end());
        keeper->shard->onRequest(update.header, std::make_unique<VectorPayload>(std::move(mean)),
                                 call, now_, answers);
      }
      deliver(*keeper, std::move(answers));
    });
  }
}

}  // namespace trainyard::sim
