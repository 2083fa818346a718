// Workers and parts of the job's tables, whose messages come late, twice or never, while epochs end
// in the middle of steps and workers come and go: all of a run's rows are those of one worker that
// took the same steps alone. With each mutation some run shows it.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/core/rng.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/rows/row_steps.h"
#include "runtime/rows/row_worker.h"
#include "tests/runtime/rows/sample_tables.h"
#include "tests/runtime/rows/whole_table.h"

namespace trainyard::runtime::rows {
namespace {

constexpr std::int64_t kSteps = 12;
constexpr std::int64_t kStepSamples = 8;
enum class Mutation {
  kNone,
  kEmptyPartsSkipped,   // a worker asks only the parts for which it has rows
  kPushTwice,           // a push that comes again counts as another rank's
  kFormerForgotten,     // a part that had taken an epoch's first step reads the new rows for it
  kStepTakenAgain,      // and takes the step once more
  kGradientsShifted,    // behind an id that is in no table yet the others have their neighbours'
  kFormerAnswerCounts,  // an answer of the epoch before counts under this one
};

struct WorkerNode {
  explicit WorkerNode(const SampleTables& tables, const std::vector<PartitionRange>& parts)
      : machine(tables.workers, parts) {}
  RowWorker machine;
  int rank = -1;  // -1: takes no part
  std::int64_t version = 0;
};

const LoneRows& alone() {
  static const LoneRows rows = [] {
    LoneRows rows(/*forgets=*/true);
    StepPlan plan;
    plan.step_samples = kStepSamples;
    plan.steps = kSteps;
    plan.ranks = 1;
    for (std::int64_t step = 0; step < kSteps; ++step) rows.take(plan, step);
    return rows;
  }();
  return rows;
}

bool isRight(const RowSteps& part) {
  for (std::size_t s = 0; s < part.stores(); ++s) {
    if (!alone().equals(copyRows(part.store(s), s))) return false;
  }
  return true;
}

// One run of a seed.
class World {
 public:
  World(std::uint64_t seed, int parts, Mutation mutation)
      : mutation_(mutation), random_(seed), ranges_(cutIntoParts(parts)) {
    for (const PartitionRange range : ranges_)
      parts_.push_back(std::make_unique<RowSteps>(tables_.configs, range));
    for (int w = 0; w < 4; ++w) workers_.push_back(std::make_unique<WorkerNode>(tables_, ranges_));
  }

  // What went wrong; nothing: the rows in the end are those of one worker alone.
  std::string run(int changes) {
    beginEpoch(1 + static_cast<int>(random_.below(4)));
    for (int turns = 0; turns < 40'000 && failure_.empty() && !finished(); ++turns) {
      // All over the run, whose messages are so many as there are parts.
      if (changes > 0 && random_.below(16 * parts_.size()) == 0) {
        --changes;
        beginEpoch(1 + static_cast<int>(random_.below(4)));
      }
      deliverOne();
    }
    if (failure_.empty() && !finished()) failure_ = "the run stands still";
    if (failure_.empty() && !std::ranges::all_of(parts_, [](auto& part) { return isRight(*part); }))
      failure_ = "the rows are others";
    return failure_;
  }

 private:
  struct Message {
    std::size_t part = 0;
    std::size_t worker = 0;
    RowRequest request;
  };
  struct Reply {
    std::size_t part = 0;
    std::size_t worker = 0;
    RowAnswer answer;
  };
  bool finished() const {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->version() == kSteps; });
  }

  // All seal, whatever is under way is lost, and the smallest version is where it goes on.
  void beginEpoch(int ranks) {
    std::vector<RowAnswer> dropped;
    for (const auto& part : parts_) part->seal(dropped);
    ++epoch_;
    plan_ = {};
    plan_.step_samples = kStepSamples;
    plan_.steps = kSteps;
    plan_.ranks = ranks;
    plan_.first_step = kSteps;
    for (const auto& part : parts_) plan_.first_step = std::min(plan_.first_step, part->version());
    plan_.first_position = plan_.first_step * kStepSamples;
    for (const auto& part : parts_) openPart(*part);
    std::vector<std::size_t> order{0, 1, 2, 3};
    for (std::size_t i = 3; i > 0; --i) std::swap(order[i], order[random_.below(i + 1)]);
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      WorkerNode& worker = *workers_[order[w]];
      worker.rank = static_cast<int>(w) < ranks ? static_cast<int>(w) : -1;
      if (worker.rank >= 0) enter(order[w]);
    }
  }
  void openPart(RowPart& part) {
    const bool is_ahead = part.version() > plan_.first_step;
    if (mutation_ == Mutation::kStepTakenAgain && is_ahead) part.setVersion(plan_.first_step);
    const Status opened = part.open(epoch_, plan_);
    if (!opened.ok()) failure_ = opened.ToString();
  }
  void enter(std::size_t w) {
    WorkerNode& worker = *workers_[w];
    worker.machine.enter(epoch_, worker.rank);
    worker.version = plan_.first_step;
    ask(w, worker.version, /*brings=*/false);
  }
  RowIds idsOf(std::int64_t step, int rank) const {
    const StepPlan::Share share = plan_.shareOf(step, rank);
    return rowIdsAt(share.first, share.count);
  }
  // For rows of the version, of all parts.
  void ask(std::size_t w, std::int64_t version, bool brings) {
    WorkerNode& worker = *workers_[w];
    worker.machine.want(version, idsOf(version, worker.rank));
    std::vector<RowRequest> requests;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      requests.push_back(worker.machine.request(p, brings));
      requests.back().push.samples = plan_.shareOf(version - 1, worker.rank).count;
    }
    send(w, std::move(requests));
  }

  void send(std::size_t w, std::vector<RowRequest> requests) {
    for (std::size_t p = 0; p < requests.size(); ++p) {
      const RowRequest& request = requests[p];
      const bool is_empty = request.gradients &&
                            std::ranges::all_of(*request.gradients, &RowGradients::empty) &&
                            std::ranges::all_of(request.ids, [](auto& ids) { return ids.empty(); });
      if (mutation_ == Mutation::kEmptyPartsSkipped && is_empty) {
        skip(w, p, request);
        continue;
      }
      requests_.push_back({p, w, request});
    }
    computeIfDue(w);
  }
  void skip(std::size_t w, std::size_t p, const RowRequest& request) {
    RowAnswer nothing;
    nothing.epoch = request.epoch;
    nothing.version = request.version;
    nothing.rows.resize(tables_.workers.size());
    workers_[w]->machine.onAnswer(p, nothing);
    // Nor does the part wait for it.
    RowRequest silent = request;
    requests_.push_back({p, w, std::move(silent)});
    requests_.back().request.ids.assign(tables_.workers.size(), {});
  }

  void deliverOne() {
    if (!requests_.empty() && (replies_.empty() || random_.below(2) == 0)) {
      const auto at = static_cast<std::ptrdiff_t>(random_.below(requests_.size()));
      const Message message = requests_[static_cast<std::size_t>(at)];
      // Now and then it comes again later.
      if (random_.below(8) != 0) requests_.erase(requests_.begin() + at);
      handle(message);
    } else if (!replies_.empty()) {
      const auto at = static_cast<std::ptrdiff_t>(random_.below(replies_.size()));
      Reply reply = replies_[static_cast<std::size_t>(at)];
      replies_.erase(replies_.begin() + at);
      if (reply.answer.code == RowAnswer::Code::kRefused) failure_ = reply.answer.message;
      if (mutation_ == Mutation::kFormerAnswerCounts) reply.answer.epoch = epoch_;
      if (workers_[reply.worker]->machine.onAnswer(reply.part, reply.answer))
        computeIfDue(reply.worker);
    }
  }
  // Of a step that is over for this part: nobody waits for the answer any more.
  static bool isLate(const RowRequest& request, const RowSteps& part) {
    const std::int64_t oldest = part.version() - (part.hasFormer() ? 1 : 0);
    return request.version < oldest || (request.gradients && request.step < part.version() - 1);
  }
  void handle(const Message& message) {
    RowRequest request = message.request;
    RowSteps& part = *parts_[message.part];
    if (request.epoch == epoch_ && isLate(request, part)) return;
    const bool forgets = mutation_ == Mutation::kFormerForgotten && !request.gradients &&
                         request.epoch == epoch_ && request.version == part.version() - 1;
    if (forgets) ++request.version;
    if (mutation_ == Mutation::kPushTwice && request.gradients && !pushed_.insert(message).second)
      request.rank = (request.rank + 1) % plan_.ranks;
    calls_[++call_] = {message.part, message.worker};
    std::vector<RowAnswer> answers;
    part.onRequest(std::move(request), call_, answers);
    if (!part.failure().ok()) failure_ = part.failure().ToString();
    if (forgets) --answers.back().version;
    for (RowAnswer& answer : answers) {
      const auto [at, worker] = calls_.at(answer.call);
      replies_.push_back({at, worker, std::move(answer)});
    }
  }

  void computeIfDue(std::size_t w) {
    WorkerNode& worker = *workers_[w];
    while (worker.rank >= 0 && worker.machine.complete() && worker.version < kSteps) {
      const std::int64_t step = worker.version;
      const StepPlan::Share share = plan_.shareOf(step, worker.rank);
      worker.machine.bring(step, compute(worker, share));
      worker.version = step + 1;
      ask(w, worker.version, share.count > 0);
    }
  }
  RowValues compute(const WorkerNode& worker, const StepPlan::Share& share) const {
    RowValues rows;
    for (std::size_t t = 0; t < tables_.workers.size(); ++t) rows.push_back(worker.machine.rows(t));
    RowValues gradients = rowGradients(share, rows);
    if (mutation_ == Mutation::kGradientsShifted && worker.version > 0 && gradients[0].size() > 2)
      std::ranges::rotate(gradients[0], gradients[0].begin() + 2);
    return gradients;
  }

  struct ByPush {
    bool operator()(const Message& a, const Message& b) const {
      const auto key = [](const Message& m) {
        return std::tuple(m.request.epoch, m.request.step, m.part, m.worker);
      };
      return key(a) < key(b);
    }
  };
  const Mutation mutation_;
  Rng random_;
  SampleTables tables_{/*forgets=*/true};
  const std::vector<PartitionRange> ranges_;
  std::vector<std::unique_ptr<RowSteps>> parts_;
  std::vector<std::unique_ptr<WorkerNode>> workers_;
  StepPlan plan_;
  std::int64_t epoch_ = 0;
  std::deque<Message> requests_;
  std::deque<Reply> replies_;
  std::map<CallId, std::pair<std::size_t, std::size_t>> calls_;
  std::set<Message, ByPush> pushed_;
  CallId call_ = 0;
  std::string failure_;
};

TEST(RowProtocol, EveryRunEndsWithTheRowsOfOneWorkerAlone) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    const int parts = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 4 : 40;
    World world(seed, parts, Mutation::kNone);
    ASSERT_EQ(world.run(static_cast<int>(seed % 6)), "") << "seed " << seed;
  }
}

class RowMutations : public testing::TestWithParam<Mutation> {};
TEST_P(RowMutations, AreCaught) {
  int caught = 0;
  for (std::uint64_t seed = 1; seed <= 100 && caught == 0; ++seed) {
    World world(seed, 40, GetParam());
    caught += world.run(4).empty() ? 0 : 1;
  }
  EXPECT_GT(caught, 0);
}
INSTANTIATE_TEST_SUITE_P(All, RowMutations,
                         testing::Values(Mutation::kEmptyPartsSkipped, Mutation::kPushTwice,
                                         Mutation::kFormerForgotten, Mutation::kStepTakenAgain,
                                         Mutation::kGradientsShifted,
                                         Mutation::kFormerAnswerCounts));

}  // namespace
}  // namespace trainyard::runtime::rows
