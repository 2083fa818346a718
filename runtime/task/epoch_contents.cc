#include "runtime/task/epoch_contents.h"

#include <utility>

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/task/shard_files.h"

namespace trainyard::runtime {
namespace {

// Parts of tables may be gigabytes: a few at a time are in memory twice, and each may take long.
constexpr ps::FetchLimits kLimitsOfRows{
    .window = 3, .call_limit = std::chrono::seconds(60), .patience = std::chrono::seconds(300)};

// While training goes on, one at a time: each is in memory twice, here and at its holder.
constexpr ps::FetchLimits kLimitsOfCopies{
    .window = 1, .call_limit = std::chrono::seconds(60), .patience = std::chrono::seconds(300)};
constexpr auto kFarBehind = std::chrono::seconds(1);

}  // namespace

EpochContents::EpochContents(const TaskOptions& options, int number, const ModelLayout& layout,
                             const Placement& placement, const Optimizer& optimizer,
                             const JobTables& tables, ps::DataAccess access, ps::Shard& shard)
    : options_(options),
      number_(number),
      layout_(layout),
      placement_(placement),
      optimizer_(optimizer),
      tables_(tables),
      access_(std::move(access)),
      shard_(shard),
      start_map_(initialMap(chunkLoads(placement, !tables.empty()), placement.num_ps).ps),
      epoch_placement_(std::make_shared<const Placement>(placement)) {}

void EpochContents::assign(const v1::EpochInfo& epoch) {
  const std::vector<int> map(epoch.chunk_ps().begin(), epoch.chunk_ps().end());
  epoch_placement_ = std::make_shared<const Placement>(withChunksAt(placement_, map));
  shard_.assign(ps::serversOf(start_map_, epoch));
  shard_.replicate(ps::chunksToReplicate(start_map_, epoch, number_),
                   epoch.replicated() && number_ != kWorkerKeeper,
                   ps::unguardedChunks(start_map_, epoch, number_));
  shard_.copyParts(ps::partsToCopy(epoch, number_), ps::followersIn(epoch));
}

Status EpochContents::fill(const v1::EpochInfo& epoch, const std::function<bool()>& over) {
  const bool loads = epoch.fresh() || !epoch.restore_manifest().empty();
  return loads ? load(epoch) : fetch(epoch, over);
}

// From a checkpoint or the seed: its own chunks and those of which it keeps replicas.
Status EpochContents::load(const v1::EpochInfo& epoch) {
  const LoadChunk take = [this](std::uint32_t chunk, std::int64_t version,
                                std::vector<float> weights, std::vector<std::vector<float>> slots) {
    shard_.load(chunk, version, std::move(weights), std::move(slots));
  };
  TY_ASSIGN_OR_RETURN(const EpochStart start, openStart(options_, *epoch_placement_, optimizer_,
                                                        tables_.described(), epoch));
  if (number_ != kWorkerKeeper) {
    TY_RETURN_IF_ERROR(
        loadStart(options_, start, layout_, *epoch_placement_, optimizer_, number_, take));
  }
  TY_RETURN_IF_ERROR(loadTables(start, tables_, shard_));
  const std::vector<std::uint32_t> replicas = ps::chunksToReplicate(start_map_, epoch, number_);
  if (replicas.empty()) return absl::OkStatus();
  return loadStart(options_, start, layout_, *epoch_placement_, optimizer_,
                   ps::serversOf(start_map_, epoch)[replicas.front()], take);
}

// What other servers hold of what is to be here: chunks, and then replicas, whose own server has
// fetched them by then.
Status EpochContents::fetch(const v1::EpochInfo& epoch, const std::function<bool()>& over) {
  const TimePoint begin = options_.clock->now();
  std::vector<ps::FetchedChunk> chunks;
  for (const std::uint32_t chunk : ps::chunksToFetch(epoch, number_))
    chunks.push_back(wanted(epoch, chunk, epoch.former_ps(static_cast<int>(chunk)), false));
  TY_RETURN_IF_ERROR(fetch(epoch, chunks, "ps.fetch", over));
  shard_.adoptReplicas();
  if (!chunks.empty()) {
    TY_INFO("epoch {}: {} {} taken over from other servers in {:.3f} s, {} bytes of parameters now",
            epoch.epoch(), chunks.size(), tables_.empty() ? "chunks" : "chunks and parts",
            toSeconds(options_.clock->now() - begin), shard_.parameterBytes());
  }
  std::vector<ps::FetchedChunk> replicas;
  for (const std::uint32_t chunk : ps::chunksToReplicate(start_map_, epoch, number_)) {
    const int from = ps::replicaSource(start_map_, epoch, chunk, shard_.isPart(chunk));
    if (from != number_) replicas.push_back(wanted(epoch, chunk, from, true));
  }
  return fetch(epoch, replicas, "ps.fetch.replica", over);
}

// A part of which there has been a replica here, or a copy, needs hardly anything.
ps::FetchedChunk EpochContents::wanted(const v1::EpochInfo& epoch, std::uint32_t chunk, int from,
                                       bool replica) const {
  ps::FetchedChunk wanted{chunk, from};
  if (replica || shard_.isPart(chunk)) wanted.known = shard_.replicaVersion(chunk);
  if (!shard_.isPart(chunk)) return wanted;
  if (const std::uint64_t mark = shard_.copyMark(chunk, ps::incarnationOf(epoch, from)); mark != 0)
    wanted.follows = mark;
  return wanted;
}

// One part that is not here after the other, and meanwhile what comes behind those that are: if
// that waited for the last part, there would be more of it than of their rows.
Status EpochContents::copy(const v1::EpochInfo& epoch, const std::function<bool()>& over) {
  const std::vector<int> servers = ps::serversOf(start_map_, epoch);
  std::vector<std::uint32_t> here, missing;
  for (const std::uint32_t part : ps::partsToCopy(epoch, number_)) {
    const bool is_here = shard_.copyMark(part, ps::incarnationOf(epoch, servers[part])) != 0;
    (is_here ? here : missing).push_back(part);
  }
  TimePoint followed = options_.clock->now();
  for (const std::uint32_t part : missing) {
    TY_RETURN_IF_ERROR(follow(epoch, {part}, servers, over));
    here.push_back(part);
    if (options_.clock->now() - followed < kFarBehind) continue;
    TY_RETURN_IF_ERROR(follow(epoch, here, servers, over));
    followed = options_.clock->now();
  }
  return missing.empty() ? follow(epoch, here, servers, over) : absl::OkStatus();
}

Status EpochContents::follow(const v1::EpochInfo& epoch, const std::vector<std::uint32_t>& numbers,
                             const std::vector<int>& servers, const std::function<bool()>& over) {
  std::vector<ps::FetchedChunk> parts;
  for (const std::uint32_t part : numbers) {
    ps::FetchedChunk wanted{part, servers[part]};
    wanted.follows = shard_.copyMark(part, ps::incarnationOf(epoch, servers[part]));
    parts.push_back(wanted);
  }
  const ps::FetchOptions options = fetching(over, kLimitsOfCopies);
  const auto take = [&](std::uint32_t part, rows::GivenPart given) {
    hitFailpoint("ps.copy", epoch.first_step());
    return shard_.takeOverCopy(epoch.epoch(), part, std::move(given),
                               ps::incarnationOf(epoch, servers[part]));
  };
  return ps::fetchChunks(options, placement_, epoch, parts, *options_.clock, {{}, take});
}

ps::FetchOptions EpochContents::fetching(const std::function<bool()>& over,
                                         const ps::FetchLimits& limits) const {
  ps::FetchOptions options;
  options.limits = limits;
  options.access = access_;
  options.job_uid = options_.job.metadata().uid();
  options.over = over;
  return options;
}

Status EpochContents::fetch(const v1::EpochInfo& epoch, const std::vector<ps::FetchedChunk>& chunks,
                            const char* failpoint, const std::function<bool()>& over) {
  const ps::FetchOptions options =
      fetching(over, tables_.empty() ? ps::FetchLimits() : kLimitsOfRows);
  return ps::fetchChunks(options, placement_, epoch, chunks, *options_.clock,
                         {[&](std::uint32_t chunk, ps::GivenChunk given) {
                            hitFailpoint(failpoint, epoch.first_step());
                            return shard_.takeOver(chunk, std::move(given));
                          },
                          [&](std::uint32_t part, rows::GivenPart given) {
                            hitFailpoint(failpoint, epoch.first_step());
                            return shard_.takeOverPart(part, std::move(given));
                          }});
}

}  // namespace trainyard::runtime
