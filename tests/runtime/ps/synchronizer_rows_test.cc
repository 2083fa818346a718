// Workers and a server that are shipped, over lanes, with embedding tables beside the chunks.
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "tests/runtime/ps/synchronizer_bench.h"
#include "tests/runtime/rows/sample_tables.h"
#include "tests/runtime/rows/whole_table.h"

namespace trainyard::runtime::ps {
namespace {

constexpr int kVariables = 2;
constexpr int kWorkers = 3;

class SynchronizerRows : public testing::Test {
 protected:
  std::unique_ptr<RowShard> rowsOf(std::optional<int> aggregate) const {
    return std::make_unique<RowShard>(tables_.configs, grid_, 0, ElementType::kFloat32, aggregate);
  }
  std::unique_ptr<Worker> makeWorker(const PsServer& server, std::uint32_t index,
                                     PsSynchronizerOptions::AskFunction ask = {},
                                     const RowIdsAt& ids = rows::rowIdsAt) const {
    auto worker = std::make_unique<Worker>(
        server, index, std::chrono::milliseconds(50), 0, systemClock(),
        [&](PsSynchronizerOptions& options) {
          options.worker.asynchronous = ask != nullptr;
          options.worker.ps_of_part = grid_.psOfPart();
          options.rows = RowLinkOptions{tables_.workers, grid_, ids, ask != nullptr};
          options.ask = ask;
        });
    worker->synchronizer.onView(server.activeView(kWorkers));
    return worker;
  }
  // Whether the turn was one of training; `seen` is told the samples, the rows and the gradients.
  using Seen = std::function<void(const Turn&, const RowValues& rows, const RowValues& gradients)>;
  static bool takeTurn(Worker& worker, const Seen& seen) {
    const StatusOr<Turn> turn = worker.synchronizer.next();
    EXPECT_TRUE(turn.ok()) << turn.status();
    if (!turn.ok() || turn->kind != Turn::Kind::kTrain) return false;
    RowExchange& exchange = *static_cast<Synchronizer&>(worker.synchronizer).rowExchange();
    const RowValues rows = exchange.rows().values;
    const StepPlan::Share share{turn->first_position, turn->samples};
    const RowValues gradients = rows::rowGradients(share, rows);
    seen(*turn, rows, gradients);
    worker.pushAll(1);
    exchange.pushRows(gradients);
    const auto outcome = worker.synchronizer.finish({1.0, turn->samples});
    EXPECT_TRUE(outcome.ok() && outcome->complete) << outcome.status();
    return outcome.ok();
  }
  std::vector<TableRows> held(const PsServer& server) const {
    std::vector<TableRows> held;
    for (std::size_t at = 0; at < server.shard.rows()->parts(); ++at) {
      server.shard.rows()->withPart(at, [&](const rows::RowPart& part) {
        for (std::size_t t = 0; t < part.tables(); ++t)
          held.push_back(rows::copyRows(part.table(t), t));
      });
    }
    return held;
  }

  const rows::SampleTables tables_;
  const RowGrid grid_{std::size_t{kVariables} * 5, 1};
};

TEST_F(SynchronizerRows, EachStepFindsTheRowsOfItsVersion) {
  constexpr std::int64_t kSteps = 20;
  PsServer server(kVariables, kWorkers, {}, 8, keys(), {}, false, 2, -1, ElementType::kFloat32,
                  rowsOf(std::nullopt));
  std::vector<rows::LoneRows> reference(1);
  const StepPlan plan = planFor(0, kWorkers);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    reference.push_back(reference.back());
    reference.back().take(plan, step);
  }
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (std::uint32_t w = 0; w < kWorkers; ++w) workers.push_back(makeWorker(server, w));
  for (auto& worker : workers) {
    threads.emplace_back([&] {
      for (std::int64_t step = 0; step < kSteps; ++step) {
        takeTurn(*worker, [&](const Turn& turn, const RowValues& rows, const RowValues&) {
          EXPECT_EQ(turn.step, step);
          EXPECT_EQ(rows, reference[static_cast<std::size_t>(step)].at(
                              {turn.first_position, turn.samples}))
              << step;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const TableRows& copy : held(server)) EXPECT_TRUE(reference.back().equals(copy));
}

// As a program looks them up: what it has not said before, in the step itself; each id once, with
// its number of occurrences.
TEST_F(SynchronizerRows, RowsThatNobodyHasForeseenAreReadInTheStep) {
  constexpr std::int64_t kSteps = 12;
  PsServer server(kVariables, kWorkers, {}, 8, keys(), {}, false, 2, -1, ElementType::kFloat32,
                  rowsOf(std::nullopt));
  rows::LoneRows reference;
  const StepPlan plan = planFor(0, kWorkers);
  std::vector<rows::LoneRows> versions{reference};
  for (std::int64_t step = 0; step < kSteps; ++step) {
    reference.take(plan, step);
    versions.push_back(reference);
  }
  // Every third step's are foreseen.
  const auto foreseen = [](std::int64_t first, int count) {
    return first / count % 3 == 0 ? rows::rowIdsAt(first, count)
                                  : RowIds(rows::rowIdsAt(first, count).size());
  };
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (std::uint32_t w = 0; w < kWorkers; ++w)
    workers.push_back(makeWorker(server, w, {}, foreseen));
  for (auto& worker : workers) {
    threads.emplace_back([&] {
      for (std::int64_t step = 0; step < kSteps; ++step) {
        const StatusOr<Turn> turn = worker->synchronizer.next();
        ASSERT_TRUE(turn.ok()) << turn.status();
        RowExchange& exchange = *static_cast<Synchronizer&>(worker->synchronizer).rowExchange();
        const TurnRows came = exchange.rows();
        EXPECT_EQ(came.ids, foreseen(turn->first_position, turn->samples));
        const StepPlan::Share share{turn->first_position, turn->samples};
        RowSums sums{rows::rowIdsAt(share.first, share.count), {}, {}};
        sums.counts.resize(sums.ids.size());
        const auto read = exchange.readRows(sums.ids);
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_EQ(*read, versions[static_cast<std::size_t>(step)].at(share)) << step;
        sums.values = rows::rowGradients(share, *read);
        worker->pushAll(1);
        exchange.pushRows(sums);
        const auto outcome = worker->synchronizer.finish({1.0, turn->samples});
        ASSERT_TRUE(outcome.ok() && outcome->complete) << outcome.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const TableRows& copy : held(server)) EXPECT_TRUE(reference.equals(copy));
}

// A coordinator of mode Async, as far as it gives out tickets and samples.
class Tickets {
 public:
  Tickets(std::int64_t pushes, int samples) : pushes_(pushes), samples_(samples) {}
  v1::TakeReply answer(const v1::TakeRequest& request) {
    const std::lock_guard lock(mutex_);
    v1::TakeReply reply;
    reply.set_code(v1::TAKE_OK);
    if (request.ticket()) reply.set_ticket(tickets_++);
    if (request.lease() && leases_ < pushes_) {
      reply.mutable_lease()->set_first(samples_ * leases_++);
      reply.mutable_lease()->set_samples(samples_);
    } else if (!request.ticket()) {
      reply.set_code(v1::TAKE_OVER);
    }
    return reply;
  }

 private:
  std::mutex mutex_;
  const std::int64_t pushes_;
  const int samples_;
  std::int64_t tickets_ = 0;
  std::int64_t leases_ = 0;
};

TEST_F(SynchronizerRows, PushesThatNobodyWaitsForAreAllThereOnce) {
  constexpr int kPushes = 40;
  PsServer server(
      kVariables, kWorkers, [](ShardConfig& c) { c.asynchronous = true; }, 8, keys(), {}, false, 2,
      -1, ElementType::kFloat32, rowsOf(1));
  Tickets tickets(kPushes + 2 * kWorkers, 4);  // each may hold one that it does not use
  const auto ask = [&](const v1::TakeRequest& request, auto answer) {
    answer(absl::OkStatus(), tickets.answer(request));
  };
  std::mutex mutex;
  rows::PushedRows pushed;
  int turns = 0;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (std::uint32_t w = 0; w < kWorkers; ++w) workers.push_back(makeWorker(server, w, ask));
  // Whoever comes finds one more: so that nobody waits for a turn that does not come.
  const auto takes = [&] {
    const std::lock_guard lock(mutex);
    return turns < kPushes && ++turns > 0;
  };
  for (auto& worker : workers) {
    threads.emplace_back([&] {
      while (takes()) {
        std::int64_t first = -1;
        const auto note = [&](const Turn& turn, const RowValues&, const RowValues& gradients) {
          first = turn.first_position;
          const std::lock_guard lock(mutex);
          pushed.bring({turn.first_position, turn.samples}, gradients);
        };
        if (!takeTurn(*worker, note)) return;
        const std::lock_guard lock(mutex);
        pushed.finish(first);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pushed.compare(held(server), 1), "");
}

}  // namespace
}  // namespace trainyard::runtime::ps
