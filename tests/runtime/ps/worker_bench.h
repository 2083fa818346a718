// A worker machine with hand-written views and servers that answer at once.
#pragma once

#include <functional>
#include <vector>

#include "runtime/ps/async_worker.h"
#include "runtime/ps/sync_worker.h"
#include "tests/runtime/ps/helpers.h"

namespace trainyard::runtime::ps {

// Chunks 0 to 2 on ps-0, chunk 3 (the last, with the loss) on ps-1; two workers, this is worker-0.
template <class Machine>
class WorkerBenchOf {
 public:
  explicit WorkerBenchOf(const std::function<void(WorkerConfig&)>& change = {})
      : machine(with(change)) {}
  static WorkerConfig with(const std::function<void(WorkerConfig&)>& change) {
    WorkerConfig c;
    c.job_uid = kJob;
    c.self = incarnation(1, 3);
    c.ps_of_chunk = {0, 0, 0, 1};
    c.window = 1;
    if (change) change(c);
    return c;
  }

  v1::View view(v1::Phase phase, std::int64_t epoch, std::int64_t first_step = 0) {
    v1::View v;
    *v.mutable_coordinator() = incarnation(1, coordinator);
    v.set_sequence(++sequence);
    v.set_phase(phase);
    v.set_stop_at(-1);
    v.set_checkpoint_at(-1);
    *v.mutable_evaluation() = evaluation;
    v1::EpochInfo* e = v.mutable_epoch();
    e->set_epoch(epoch);
    if (phase == v1::PHASE_SEALING) return v;
    e->set_first_step(first_step);
    e->set_first_position(first_position);
    e->set_step_samples(4);
    e->set_steps(steps);
    e->set_end_position(end_position);
    e->set_backup_workers(backup_workers);
    v.set_progress(progress);
    v.set_draining(draining);
    for (std::uint32_t i = 0; i < 2; ++i) add(*e, v1::ROLE_PS, i, i);
    for (std::uint32_t i = 0; i < workers; ++i) add(*e, v1::ROLE_WORKER, i, i);
    return v;
  }
  static void add(v1::EpochInfo& e, v1::Role role, std::uint32_t index, std::uint32_t rank) {
    v1::EpochMember* m = e.add_members();
    m->mutable_id()->set_role(role);
    m->mutable_id()->set_index(index);
    *m->mutable_incarnation() = incarnation(1, 10 + index);
    if (role == v1::ROLE_WORKER) m->set_rank(rank);
  }
  void see(const v1::View& v) { machine.onView(v); }
  void see(v1::Phase phase, std::int64_t epoch, std::int64_t first_step = 0) {
    see(view(phase, epoch, first_step));
  }

  static v1::ChunkReplyHeader ok(std::int64_t version) {
    v1::ChunkReplyHeader h;
    h.set_code(v1::CHUNK_OK);
    h.set_version(version);
    h.set_samples(4);
    h.set_loss_sum(6);
    h.set_hits(3);
    return h;
  }
  static v1::ChunkReplyHeader refusal(v1::ChunkCode code) {
    v1::ChunkReplyHeader h;
    h.set_code(code);
    h.set_message("no");
    return h;
  }
  // Answers one request as it wishes; true when it was taken.
  bool answer(const Send& send) {
    const v1::ChunkRequestHeader& h = send.header;
    const std::int64_t version = h.pull_only() ? h.version() : h.step() + 1;
    if (!machine.onReply(send.chunk, send.attempt, absl::OkStatus(), ok(version), now))
      return false;
    machine.onStored(send.chunk, send.attempt);
    return true;
  }
  // Answers all requests until there are no more; how many.
  int serve() {
    int served = 0;
    for (auto sends = machine.takeSends(now); !sends.empty(); sends = machine.takeSends(now)) {
      for (const Send& send : sends) served += answer(send);
    }
    return served;
  }
  std::vector<Send> sends() { return machine.takeSends(now); }
  // Everything that goes out while servers receive, but do not answer.
  std::vector<Send> receiveAll() {
    std::vector<Send> all;
    for (auto some = sends(); !some.empty(); some = sends()) {
      for (const Send& send : some) {
        machine.onReceived(send.chunk, send.attempt);
        all.push_back(send);
      }
    }
    return all;
  }
  std::optional<Turn> turn() {
    auto t = machine.turn();
    EXPECT_TRUE(t.ok()) << t.status();
    return t.ok() ? *t : std::nullopt;
  }
  void gradients() {
    for (std::uint32_t c = 0; c < 4; ++c) machine.gradientReady(c);
    machine.lossReady({.loss_sum = 3});
  }
  // Takes a whole step that must be at hand.
  void step() {
    const auto t = turn();
    ASSERT_TRUE(t.has_value());
    ASSERT_EQ(t->kind, Turn::Kind::kTrain);
    gradients();
    serve();
    ASSERT_EQ(machine.stepState(), WorkerMachine::StepState::kComplete);
    machine.endStep();
  }
  // The question that goes out now; it must be there.
  v1::TakeRequest question() {
    machine.takeSends(now);
    const auto asked = machine.takeAsk(now);
    EXPECT_TRUE(asked.has_value());
    return asked.value_or(v1::TakeRequest());
  }
  bool asks() {
    machine.takeSends(now);
    return machine.takeAsk(now).has_value();
  }
  void tell(const v1::TakeRequest& question, const v1::TakeReply& reply) {
    machine.onTake(question, absl::OkStatus(), reply, now);
  }
  static v1::TakeReply reply(v1::TakeCode code) {
    v1::TakeReply r;
    r.set_code(code);
    return r;
  }
  static v1::TakeReply ticket(std::int64_t number) {
    v1::TakeReply r = reply(v1::TAKE_OK);
    r.set_ticket(number);
    return r;
  }
  static v1::TakeReply place(std::uint32_t number) {
    v1::TakeReply r = reply(v1::TAKE_OK);
    r.set_place(number);
    return r;
  }
  static v1::TakeReply lease(std::int64_t first, std::int32_t samples = 5) {
    v1::TakeReply r = reply(v1::TAKE_OK);
    r.mutable_lease()->set_first(first);
    r.mutable_lease()->set_samples(samples);
    return r;
  }
  v1::MemberReport report() const {
    v1::MemberReport r;
    machine.fillReport(r);
    return r;
  }

  TimePoint now = kStart;
  std::uint32_t coordinator = 1;
  std::uint64_t sequence = 0;
  std::int64_t first_position = 0;
  std::int64_t end_position = 0;
  std::int64_t steps = 4;
  std::uint32_t workers = 2;
  std::int32_t backup_workers = 0;
  std::int64_t progress = 0;
  bool draining = false;
  v1::Evaluation evaluation;
  Machine machine;
};
using WorkerBench = WorkerBenchOf<SyncWorker>;

}  // namespace trainyard::runtime::ps
