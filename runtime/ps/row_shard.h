// One parameter server's parts of the job's tables: requests for rows to their parts, which take
// their steps side by side. What Shard is to chunks; a part of it, whose epochs it follows.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/data/number_set.h"
#include "runtime/data/step_plan.h"
#include "runtime/ps/chunk_state.h"
#include "runtime/ps/row_grid.h"
#include "runtime/rows/row_part.h"
#include "runtime/tensor/element_type.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// Thread-safe, but for open(), seal(), clear() and load(), while which nobody else calls.
class RowShard {
 public:
  // What the tables' optimizers are must outlive it. `wire`: of gradients on their way here.
  // `aggregate`: in modes Async and BoundedDelay, the pushes that make an update; nothing: Sync.
  RowShard(std::vector<rows::RowTableConfig> tables, RowGrid grid, int ps, ElementType wire,
           std::optional<int> aggregate = std::nullopt);

  // Called with a part that is at rest, before and after each of its steps, while nobody else may
  // have it: what the version is wanted for.
  using Look = std::function<void(std::size_t at, const rows::RowPart& part)>;
  void setLook(Look look) { look_ = std::move(look); }

  bool has(std::uint32_t number) const;
  // One request, of an epoch that is open. Answers appear in `out`; CHUNK_OK has the rows of all
  // tables, one after the other.
  void onRequest(const v1::ChunkRequestHeader& header, std::span<const std::byte> body, CallId call,
                 TimePoint now, std::vector<ChunkAnswer>& out);
  void onCancelled(CallId call);
  // Answers calls that have waited since before `since`.
  void giveUp(TimePoint since, std::vector<ChunkAnswer>& out);

  void seal(std::vector<ChunkAnswer>& out);
  Status open(std::int64_t epoch, const StepPlan& plan);
  // Tables without rows, at `version`; to be filled by load().
  void clear(std::int64_t version);
  // Those of the rows that are in its parts.
  void load(const TableRows& rows);

  // Asynchronous modes, while no push is under way: what is here is called by this version.
  void settle(std::int64_t version);
  // The same modes: adds those of the pushes that are in one of its parts.
  void addPushed(NumberSet& tickets, NumberSet& samples) const;

  std::size_t parts() const { return parts_.size(); }
  // Of all of its parts together.
  rows::PartitionRange range() const;
  // `use` is given one of its parts, which nobody else has meanwhile.
  void withPart(std::size_t at, const std::function<void(const rows::RowPart&)>& use) const;
  // Of all of its parts, without waiting for any; no parts: -1.
  std::int64_t lowestVersion() const;
  std::int64_t highestVersion() const;
  // What has kept a step from being taken; of the step whose gradients these were.
  std::optional<v1::Abort> abort() const;
  void fillTables(v1::ShardTable& table) const;
  // What is held and what was asked for, by table. Any thread, at any time.
  void fillReport(v1::RuntimeReport& report) const;

 private:
  struct Part {
    std::uint32_t number = 0;
    std::mutex mutex;
    std::unique_ptr<rows::RowPart> rows;  // as makePart() makes them
    std::map<CallId, TimePoint> waiting;
    std::atomic<std::int64_t> version = -1;  // to be read without the mutex
  };
  std::unique_ptr<rows::RowPart> makePart(rows::PartitionRange range) const;
  // Which of parts_ it is.
  std::optional<std::size_t> find(std::uint32_t number) const;
  void answer(Part& part, std::uint32_t number, std::vector<rows::RowAnswer> answers,
              std::vector<ChunkAnswer>& out);
  ChunkAnswer refuse(CallId call, std::uint32_t number, std::string why) const;

  const std::vector<rows::RowTableConfig> tables_;
  const RowGrid grid_;
  const int ps_;
  const ElementType wire_;
  const std::optional<int> aggregate_;
  std::vector<std::size_t> dims_;
  Look look_ = [](std::size_t, const rows::RowPart&) {};
  std::vector<std::unique_ptr<Part>> parts_;  // ascending by number
};

}  // namespace trainyard::runtime::ps
