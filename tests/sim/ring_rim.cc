// Reports and views of a simulated AllReduce job, and what stands around its coordinator.
#include <utility>

#include "fmt/format.h"
#include "tests/sim/ring_world.h"

namespace trainyard::sim {

void RingWorld::poke(Node& node) {
  if (!node.machine->takeUrgent()) return;
  if (node.calls < 2) {
    sendReport(node);
  } else {
    node.poked = true;
  }
}

void RingWorld::sendReport(Node& node) {
  ++node.calls;
  node.poked = false;
  v1::MemberReport report;
  report.set_job_uid("uid-1");
  report.set_protocol_min(runtime::kProtocol);
  report.set_protocol_max(runtime::kProtocol);
  report.mutable_id()->set_role(v1::ROLE_WORKER);
  report.mutable_id()->set_index(node.index);
  *report.mutable_incarnation() = node.incarnation;
  report.set_revision(isMember(node.index) ? membership_.revision() : node.revision);
  report.set_job_digest("digest");
  report.mutable_data()->set_samples(config_.samples);
  report.mutable_data()->set_eval_samples(100);
  report.mutable_data()->set_sha256("data");
  node.machine->fillReport(report);
  const auto reply = [this, find = finder(node), report,
                      over = std::make_shared<bool>(false)](const std::optional<v1::View>& view) {
    Node* alive = find();
    if (alive != nullptr && !std::exchange(*over, true)) answered(*alive, report, view);
  };
  const auto lost = [this, reply] { at(networkDelay(), [reply] { reply(std::nullopt); }); };
  // The caller's deadline, also for calls that were parked in a coordinator that has died.
  at(std::chrono::seconds(4), [reply] { reply(std::nullopt); });
  if (rng_.unit() < config_.drop) return lost();
  at(networkDelay(), [this, report, reply, lost] {
    Node* home = nodes_[0].get();
    if (home == nullptr || done_[0]) return lost();
    const std::uint64_t ticket = home->next_ticket++;
    home->tickets[ticket] = [this, reply, lost](const v1::View& view) {
      if (rng_.unit() < config_.drop) return lost();
      at(networkDelay(), [reply, view] { reply(view); });
    };
    home->coordinator->onReport(report, ticket, now_);
    execute(*home, home->coordinator->takeActions());
  });
}

void RingWorld::answered(Node& node, const v1::MemberReport& report,
                         const std::optional<v1::View>& view) {
  --node.calls;
  const auto find = finder(node);
  const std::size_t index = node.index;
  if (view) {
    if (view->left() && isMember(index)) problem("a member is told that it has left");
    node.machine->onView(*view);
    poke(node);
    work(node);
  }
  if (report.leaving() && !isMember(index)) {
    ++result_.left;
    breakGroup(node);
    nodes_[index].reset();
    return;
  }
  // The coordinator's process ends when the others have.
  if (report.leaving() && index != 0) {
    done_[index] = true;
    return;
  }
  if (node.calls > 0 && !node.poked) return;
  const Duration pause = view ? Duration(0) : Duration(std::chrono::milliseconds(100));
  at(pause, [this, find] {
    Node* alive = find();
    if (alive != nullptr && alive->calls < 2) sendReport(*alive);
  });
}

void RingWorld::execute(Node& node, std::vector<runtime::CoordinatorAction> actions) {
  for (auto& action : actions) {
    if (auto* reply = std::get_if<runtime::ReplyAction>(&action)) {
      const auto it = node.tickets.find(reply->ticket);
      if (it == node.tickets.end()) continue;
      const auto answer = std::move(it->second);
      node.tickets.erase(it);
      followEpoch(reply->view);
      const v1::View& view = reply->view;
      if (!view.epoch().restore_manifest().empty() &&
          returned_.emplace(view.coordinator().start(), view.epoch().epoch()).second)
        ++result_.returns;
      answer(reply->view);
    } else if (auto* wanted = std::get_if<runtime::CommitAction>(&action)) {
      at(std::chrono::milliseconds(1 + rng_.below(20)),
         [this, find = finder(node), manifest = wanted->manifest] {
           if (Node* home = find()) commit(*home, manifest);  // else it died before
         });
    } else if (auto* finish = std::get_if<runtime::FinishAction>(&action)) {
      at(std::chrono::milliseconds(rng_.below(10)), [this, find = finder(node), end = *finish] {
        Node* home = find();
        if (home == nullptr) return;
        finished_ = end.evaluation;
        finished_->set_version(end.steps);
        home->coordinator->onFinishRecorded(absl::OkStatus(), now_);
        execute(*home, home->coordinator->takeActions());
      });
    } else if (auto* evaluation = std::get_if<runtime::EvaluationAction>(&action)) {
      if (evaluation->evaluation.samples() != 100) problem("an evaluation does not cover the set");
    }
  }
  if (node.coordinator->finished(now_)) done_[0] = true;
  const v1::JobProgress progress = node.coordinator->progress(now_);
  if (progress.outcome().empty()) return;
  result_.outcome = progress.outcome();
  result_.lost_steps = progress.lost_steps();
  result_.epochs = progress.epoch();
  result_.steps = progress.step();
  if (progress.outcome() == "succeeded" && progress.steps() != plan_.steps)
    problem("the coordinator counts other steps");
}

void RingWorld::commit(Node& node, const runtime::Manifest& manifest) {
  for (const auto& file : manifest.files) {
    const auto found = files_.find(file.name);
    if (found == files_.end()) return problem("a manifest names a file that is not there");
    if (found->second.first != manifest.step) problem("a manifest names a file of another step");
  }
  if (manifest.files.size() != 1) problem("a manifest names several files");
  manifests_.push_back(manifest);
  manifests_.back().data_samples = config_.samples;
  node.coordinator->onCommitted(manifest, absl::OkStatus(), now_);
  execute(node, node.coordinator->takeActions());
}

}  // namespace trainyard::sim
