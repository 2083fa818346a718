// What a mutation does to messages on their way.
#include <algorithm>

#include "tests/sim/nodes.h"

namespace trainyard::sim {

// At the coordinator.
void World::breakReport(v1::MemberReport& report) const {
  const bool server = report.id().role() == v1::ROLE_PS;
  const PsNode& home = *ps_[0];
  switch (config_.mutation) {
    case Mutation::kSealClaimed:
      if (server) report.set_sealed_epoch(home.coordinator->progress(now_).epoch());
      break;
    case Mutation::kPreparedClaimed:
      if (server) report.set_prepared_epoch(report.sealed_epoch());
      break;
    case Mutation::kVersionClaimed:
      if (!server && report.worker().version() > 0)
        report.mutable_worker()->set_version(report.worker().version() + 1);
      break;
    case Mutation::kRestClaimed:
      if (!server) report.mutable_worker()->set_idle(true);
      break;
    case Mutation::kBegunNotTold:
      report.clear_begun();
      break;
    case Mutation::kPushesNotTold:
      report.mutable_shard()->clear_pushed_tickets();
      report.mutable_shard()->clear_pushed_samples();
      break;
    case Mutation::kHandsNotTold:
      report.mutable_worker()->clear_lease();
      report.mutable_worker()->clear_pushing_lease();
      break;
    case Mutation::kHighestNotTold:
      report.clear_highest_epoch();
      break;
    case Mutation::kFormerSealCounts:
      *report.mutable_seen_coordinator() = home.incarnation;
      break;
    case Mutation::kSuccessorAlike:
      report.mutable_incarnation()->set_start(1);
      break;
    case Mutation::kReplicaRoundedUp: {
      std::int64_t newest = -1;
      for (const auto& replica : report.shard().replicas())
        newest = std::max(newest, replica.version());
      for (auto& replica : *report.mutable_shard()->mutable_replicas()) replica.set_version(newest);
      break;
    }
    default:
      break;
  }
}

// At a worker.
void World::breakView(const WorkerNode& node, v1::View& view) const {
  if (!broken(Mutation::kOneRankTwice) || node.index != 1) return;
  for (auto& member : *view.mutable_epoch()->mutable_members()) {
    if (member.id().role() == v1::ROLE_WORKER && member.id().index() == 1) member.set_rank(0);
  }
}

// At a server.
void World::breakPush(const PsNode& server, v1::ChunkRequestHeader& header) {
  if (broken(Mutation::kRepeatIsNew)) header.set_push(++made_up_);
  if (broken(Mutation::kRepeatedRowsAreNew) && isPart(header.chunk())) header.set_push(++made_up_);
  if (broken(Mutation::kSuccessorAlike)) *header.mutable_server() = server.incarnation;
  if (broken(Mutation::kFormerRowsForgotten) && isPart(header.chunk()) && header.pull_only())
    header.set_version(runtime::rows::kNewestRows);
}

void World::breakRows(const runtime::ps::Send& send, v1::ChunkReplyHeader& header) const {
  if (!broken(Mutation::kFormerRowsForgotten) || !isPart(send.chunk) || !send.header.pull_only())
    return;
  header.set_version(send.header.version());
}

// At a server, of a request that is lost on its way.
void World::breakCutPush(const runtime::ps::Send& send, std::vector<float> gradient) {
  if (!broken(Mutation::kCutGradientCounts) || !send.with_payload) return;
  std::fill(gradient.begin() + static_cast<std::ptrdiff_t>(gradient.size() / 2), gradient.end(),
            0.0f);
  at(ownerOf(v1::ROLE_PS, static_cast<std::size_t>(send.ps)), networkDelay(),
     [this, send, gradient] {
       PsNode* server = ps_[static_cast<std::size_t>(send.ps)].get();
       if (server == nullptr || ps_done_[static_cast<std::size_t>(send.ps)]) return;
       std::vector<runtime::ps::ChunkAnswer> answers;
       server->shard->onRequest(send.header, std::make_unique<VectorPayload>(gradient),
                                server->next_call++, now_, answers);
       forward(*server);
       deliver(*server, std::move(answers));
     });
}

// Where a chunk arrives that was another server's.
void World::breakContents(runtime::ps::GivenChunk& given) const {
  if (broken(Mutation::kMovedWithoutSlots)) {
    for (auto& slot : given.slots) slot.assign(slot.size(), 0.0f);
  }
  if (broken(Mutation::kMovedFormer) && given.previous != nullptr) given.weights = given.previous;
  if (broken(Mutation::kMovedWithoutPushes)) given.record.clear_applied();
}

void World::breakContents(runtime::rows::GivenPart& given) const {
  if (broken(Mutation::kMovedWithoutSlots)) {
    for (runtime::TableRows& rows : given.stores) {
      for (auto& slot : rows.slots) slot.assign(slot.size(), 0.0F);
    }
  }
  if (broken(Mutation::kMovedFormer)) given.update = nullptr;
  if (broken(Mutation::kMovedWithoutPushes)) given.applied.clear();
  if (broken(Mutation::kCopyMissesUpdate) && !given.updates.empty())
    given.updates.erase(given.updates.begin());
}

// At the coordinator.
void World::breakQuestion(v1::TakeRequest& request) {
  if (broken(Mutation::kQuestionIsNew)) request.set_sequence(++made_up_);
}

// On the disk.
void World::breakManifest(runtime::Manifest& manifest) const {
  if (broken(Mutation::kLedgerForgotten)) manifest.epochs.clear();
  if (broken(Mutation::kPositionForgotten)) manifest.position = 0;
}

// The membership has left these servers out.
void World::breakLeavers(int from, int to) {
  if (!broken(Mutation::kLeaverNotAwaited)) return;
  for (int i = from; i < to; ++i) ps_[static_cast<std::size_t>(i)].reset();
}

// At the coordinator. (Revisions have room between them.)
void World::breakMembership(v1::Membership& membership) {
  if (!broken(Mutation::kRevisionsDisordered)) return;
  told_ = std::max(told_ + 1, membership.revision());
  membership.set_revision(told_);
}

}  // namespace trainyard::sim
