// A coordinator and members that say what a test makes them say.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/coordinator/coordinator.h"

namespace trainyard::runtime {

inline v1::Incarnation incarnation(std::uint32_t created, std::uint32_t start) {
  v1::Incarnation i;
  i.set_created(created);
  i.set_start(start);
  return i;
}

inline v1::Membership members(int ps, int workers, std::int64_t revision = 1) {
  v1::Membership m;
  m.set_revision(revision);
  for (int i = 0; i < ps + workers; ++i) {
    v1::TaskId* id = m.add_tasks()->mutable_id();
    id->set_role(i < ps ? v1::ROLE_PS : v1::ROLE_WORKER);
    id->set_index(static_cast<std::uint32_t>(i < ps ? i : i - ps));
  }
  return m;
}

struct Bench {
  using Key = std::pair<v1::Role, std::uint32_t>;

  explicit Bench(int ps = 1, int workers = 2,
                 const std::function<void(CoordinatorConfig&)>& change = {},
                 std::optional<Manifest> newest = std::nullopt)
      : c(with(change), members(ps, workers), std::move(newest), now) {
    join(ps, workers);
  }
  static CoordinatorConfig with(const std::function<void(CoordinatorConfig&)>& change) {
    CoordinatorConfig config;
    config.job_uid = "uid-1";
    config.job_digest = "digest";
    config.self = incarnation(1, 1);
    config.steps = 100;
    config.batch_size = 10;
    if (change) change(config);
    return config;
  }
  void join(int ps, int workers) {
    const v1::Membership all = members(ps, workers);
    for (const v1::MemberTask& task : all.tasks()) {
      v1::MemberReport& r = reports[{task.id().role(), task.id().index()}];
      *r.mutable_id() = task.id();
      r.set_job_uid("uid-1");
      r.set_protocol_min(kProtocol);
      r.set_protocol_max(kProtocol);
      *r.mutable_incarnation() = incarnation(1, 1);
      r.set_revision(1);
      r.set_job_digest("digest");
      if (task.id().role() == v1::ROLE_PS) {
        r.set_parameter_bytes(8);
        clear(r);
      } else {
        r.mutable_worker()->set_version(-1);
        r.mutable_data()->set_samples(1000);
        r.mutable_data()->set_eval_samples(100);
        r.mutable_data()->set_sha256("0123456789abcdef");
      }
    }
  }
  static void clear(v1::MemberReport& r) {
    r.mutable_shard()->set_empty(true);
    r.mutable_shard()->set_min_version(-1);
    r.mutable_shard()->set_max_version(-1);
    r.mutable_shard()->set_missed_checkpoint(-1);
  }

  v1::MemberReport& ps(std::uint32_t i = 0) { return reports[{v1::ROLE_PS, i}]; }
  v1::MemberReport& worker(std::uint32_t i = 0) { return reports[{v1::ROLE_WORKER, i}]; }

  // The report as it stands; the call's ticket.
  std::uint64_t send(const v1::MemberReport& report) {
    c.onReport(report, ++tickets, now);
    take();
    return tickets;
  }
  std::optional<v1::View> reply(std::uint64_t ticket) const {
    const auto it = replies.find(ticket);
    return it == replies.end() ? std::nullopt : std::optional<v1::View>(it->second);
  }
  void take() {
    for (CoordinatorAction& action : c.takeActions()) {
      if (auto* r = std::get_if<ReplyAction>(&action)) replies[r->ticket] = r->view;
      if (auto* m = std::get_if<CommitAction>(&action)) commits.push_back(m->manifest);
      if (auto* f = std::get_if<FinishAction>(&action)) finishes.push_back(*f);
      if (auto* e = std::get_if<EvaluationAction>(&action)) evaluations.push_back(e->evaluation);
      if (auto* t = std::get_if<TakeReplyAction>(&action)) answers[t->call] = t->reply;
      if (auto* l = std::get_if<LogAction>(&action)) logs.push_back(l->text);
    }
  }
  void tick(Duration by = Duration(0)) {
    now += by;
    c.onTick(now);
    take();
  }
  // One word of one member that heeds the answer.
  void say(v1::MemberReport& r) {
    const auto view = reply(send(r));
    if (view) heed(r, *view);
  }
  void heed(v1::MemberReport& r, const v1::View& view) {
    last_view = view;
    r.set_seen_view(view.sequence());
    *r.mutable_seen_coordinator() = view.coordinator();
    const std::int64_t epoch = view.epoch().epoch();
    r.set_highest_epoch(std::max(r.highest_epoch(), epoch));
    r.set_sealed_epoch(r.highest_epoch());
    if (r.id().role() == v1::ROLE_PS && view.phase() == v1::PHASE_PREPARING && prepares &&
        isMember(view.epoch(), r.id())) {
      r.set_prepared_epoch(epoch);
      const bool takes_over = r.shard().empty();
      if (takes_over || view.epoch().fresh() || !view.epoch().restore_manifest().empty())
        setShard(r, view.epoch().first_step());
    }
    if (r.id().role() == v1::ROLE_WORKER) heedAsWorker(r, view);
    if (view.left() || view.phase() == v1::PHASE_DONE || view.phase() == v1::PHASE_STOPPED ||
        view.phase() == v1::PHASE_FAILED) {
      r.set_leaving(true);
    }
  }
  void heedAsWorker(v1::MemberReport& r, const v1::View& view) {
    const std::int64_t epoch = view.epoch().epoch();
    const bool computes = view.phase() == v1::PHASE_ACTIVE && isRank(view.epoch(), r.id().index());
    // Between two steps, as long as a test does not say otherwise.
    if (computes && rests && (view.hold() || resting.contains(r.id().index()))) {
      r.mutable_worker()->set_idle(view.hold());
      if (view.hold()) resting.insert(r.id().index());
    }
    if (computes && (view.epoch().fresh() || !view.epoch().restore_manifest().empty() ||
                     r.worker().version() < 0)) {
      if (active_in[r.id().index()] != epoch)
        r.mutable_worker()->set_version(view.epoch().first_step());
      active_in[r.id().index()] = epoch;
    }
    if (!computes) return;
    if (r.worker().epoch() != epoch) r.mutable_worker()->set_finished(0);
    r.mutable_worker()->set_epoch(epoch);
  }
  static bool isMember(const v1::EpochInfo& epoch, const v1::TaskId& id) {
    return std::any_of(epoch.members().begin(), epoch.members().end(), [&](const auto& m) {
      return m.id().role() == id.role() && m.id().index() == id.index();
    });
  }
  static bool isRank(const v1::EpochInfo& epoch, std::uint32_t index) {
    v1::TaskId id;
    id.set_role(v1::ROLE_WORKER);
    id.set_index(index);
    return isMember(epoch, id);
  }
  static void setShard(v1::MemberReport& r, std::int64_t lowest, std::int64_t highest = -1) {
    r.mutable_shard()->set_empty(false);
    r.mutable_shard()->set_min_version(lowest);
    r.mutable_shard()->set_max_version(std::max(lowest, highest));
  }
  // All members say all they know until nothing new follows.
  void settle() {
    for (int round = 0; round < 8; ++round) {
      for (auto& [key, r] : reports) say(r);
    }
  }
  void activate() {
    settle();
    ASSERT_EQ(c.phase(), v1::PHASE_ACTIVE) << c.waitingFor(now);
  }
  // Everybody has reached `version`.
  void reach(std::int64_t version) {
    for (auto& [key, r] : reports) {
      if (key.first == v1::ROLE_PS) {
        setShard(r, version);
      } else {
        r.mutable_worker()->set_version(version);
      }
    }
    settle();
  }
  // Every server has written its part of `version`.
  void write(std::int64_t version, const std::string& error = "") {
    for (auto& [key, r] : reports) {
      if (key.first != v1::ROLE_PS) continue;
      v1::ShardFile* file = r.add_written();
      file->set_epoch(last_view.epoch().epoch());
      file->set_version(version);
      file->set_name("ps-" + std::to_string(key.second) + ".step-" + std::to_string(version));
      file->set_error(error);
    }
    settle();
  }
  void commit() {
    ASSERT_FALSE(commits.empty());
    c.onCommitted(commits.back(), absl::OkStatus(), now);
    take();
    settle();
  }
  void evaluated(std::uint32_t index, std::int64_t version, std::int64_t hits, std::int64_t epoch) {
    v1::EvaluationPart* part = worker(index).mutable_worker()->add_evaluations();
    part->set_version(version);
    part->set_epoch(epoch);
    part->set_rank(index);
    part->set_hits(hits);
    part->set_samples(50);
    part->set_loss_sum(5);
  }
  // A worker's next question under the newest epoch; what it asks for is not in it yet.
  v1::TakeRequest next(std::uint32_t index) {
    v1::TakeRequest q;
    q.set_job_uid("uid-1");
    *q.mutable_id() = worker(index).id();
    *q.mutable_incarnation() = worker(index).incarnation();
    q.set_epoch(last_view.epoch().epoch());
    q.set_sequence(++questions[{index, q.epoch()}]);
    return q;
  }
  // For samples, or a ticket and samples.
  v1::TakeRequest question(std::uint32_t index, bool ticket) {
    v1::TakeRequest q = next(index);
    q.set_ticket(ticket);
    q.set_lease(true);
    q.set_finished(worker(index).worker().finished());
    return q;
  }
  // For the gradient's place in its step.
  v1::TakeRequest questionForPlace(std::uint32_t index, std::int64_t step) {
    v1::TakeRequest q = next(index);
    q.set_step(step);
    q.set_with_gradient(true);
    return q;
  }
  // The call's number.
  std::uint64_t put(const v1::TakeRequest& question) {
    c.onTake(question, ++tickets, now);
    take();
    return tickets;
  }
  std::uint64_t ask(std::uint32_t index, bool ticket) { return put(question(index, ticket)); }
  // TAKE_UNSPECIFIED: not answered yet.
  v1::TakeReply answerOf(std::uint64_t call) const {
    const auto it = answers.find(call);
    return it == answers.end() ? v1::TakeReply() : it->second;
  }
  void finishPush(std::uint32_t index) {
    v1::WorkerState& state = *worker(index).mutable_worker();
    state.set_finished(state.finished() + 1);
    say(worker(index));
  }
  void restart(v1::MemberReport& r) {
    const std::uint32_t start = r.incarnation().start() + 1;
    r.set_highest_epoch(0);
    r.set_sealed_epoch(0);
    r.set_prepared_epoch(0);
    r.set_seen_view(0);
    r.clear_seen_coordinator();
    r.clear_written();
    *r.mutable_incarnation() = incarnation(1, start);
    if (r.id().role() == v1::ROLE_PS) clear(r);
    if (r.id().role() == v1::ROLE_WORKER) {
      r.clear_worker();
      r.mutable_worker()->set_version(-1);
    }
  }
  // The record says so many, and those of them that report know it; new ones do not report yet.
  void rescale(int ps, int workers, std::int64_t revision) {
    c.setMembership(members(ps, workers, revision), now);
    for (auto& [key, r] : reports) {
      const int wanted = key.first == v1::ROLE_PS ? ps : workers;
      if (static_cast<int>(key.second) < wanted) r.set_revision(revision);
    }
    tick();
  }
  // Of a job in its first epoch: steps up to `step` are taken while somebody is yet to come.
  void expectNobodyIsWaitedFor(std::int64_t step) {
    tick(std::chrono::seconds(3));
    settle();
    tick(std::chrono::seconds(3));
    reach(step);
    EXPECT_EQ(c.phase(), v1::PHASE_ACTIVE);
    EXPECT_EQ(epoch(), 1);
    EXPECT_FALSE(last_view.hold());
    EXPECT_EQ(c.waitingFor(now), "");
  }
  std::int64_t epoch() const { return last_view.epoch().epoch(); }
  int logged(const std::string& part) const {
    return static_cast<int>(std::count_if(logs.begin(), logs.end(), [&](const std::string& text) {
      return text.find(part) != std::string::npos;
    }));
  }

  TimePoint now{std::chrono::hours(1)};
  Coordinator c;
  std::map<Key, v1::MemberReport> reports;
  std::map<std::uint32_t, std::int64_t> active_in;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::int64_t> questions;
  std::uint64_t tickets = 0;
  bool prepares = true;
  bool rests = true;
  std::set<std::uint32_t> resting;
  v1::View last_view;
  std::map<std::uint64_t, v1::View> replies;
  std::map<std::uint64_t, v1::TakeReply> answers;  // to questions, by call
  std::vector<Manifest> commits;
  std::vector<FinishAction> finishes;
  std::vector<v1::Evaluation> evaluations;
  std::vector<std::string> logs;
};

}  // namespace trainyard::runtime
