#include "runtime/ps/chunk_fetch.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_moves.h"
#include "runtime/ps/fetch_lanes.h"
#include "runtime/ps/protocol.h"

namespace trainyard::runtime::ps {
namespace {

// How long the end of the epoch may go unnoticed while nothing comes.
constexpr Duration kLook = std::chrono::milliseconds(50);

Status taken(const TakeFetched& take, std::uint32_t chunk, FetchLanes::Given given) {
  if (auto* part = std::get_if<rows::GivenPart>(&given)) return take.part(chunk, std::move(*part));
  return take.chunk(chunk, std::move(std::get<GivenChunk>(given)));
}

}  // namespace

Status fetchChunks(const FetchOptions& options, const Placement& placement,
                   const v1::EpochInfo& epoch, const std::vector<FetchedChunk>& chunks,
                   const Clock& clock, const TakeFetched& take) {
  if (chunks.empty()) return absl::OkStatus();
  std::map<int, v1::Incarnation> sources = sourcesOf(epoch);
  for (const FetchedChunk& one : chunks) {
    if (sources.contains(one.from)) continue;
    return absl::InternalError(
        fmt::format("chunk {} is to come from {}, which epoch {} "
                    "does not name",
                    one.chunk, serverName(one.from), epoch.epoch()));
  }
  TY_ASSIGN_OR_RETURN(const std::unique_ptr<FetchLanes> lanes,
                      FetchLanes::open(options.access, placement.num_ps, epoch));
  const auto ask = [&](std::size_t at) {
    const FetchedChunk& one = chunks[at];
    FetchLanes::Question question{at, std::nullopt, {}};
    if (one.chunk < placement.chunks.size())
      question.elements = placement.chunks[one.chunk].elements;
    question.request.set_protocol(kChunkProtocol);
    question.request.set_job_uid(options.job_uid);
    question.request.set_epoch(epoch.epoch());
    *question.request.mutable_server() = sources[one.from];
    question.request.set_chunk(one.chunk);
    if (one.known >= 0) question.request.set_known_version(one.known);
    if (one.follows) {
      question.request.set_follows(*one.follows);
      question.request.set_follower(static_cast<std::int32_t>(options.access.self.index));
    }
    lanes->ask(one.from, std::move(question));
  };
  FetchQueue queue(chunks, options.limits, clock.now());
  std::string last;
  while (!queue.done()) {
    if (options.over()) return absl::CancelledError("the epoch has ended");
    const TimePoint now = clock.now();
    if (queue.late(now)) {
      return absl::DeadlineExceededError(fmt::format("epoch {} is not complete after {:.0f} s: {}",
                                                     epoch.epoch(),
                                                     toSeconds(options.limits.patience), last));
    }
    if (const std::optional<int> silent = queue.silent(now))
      lanes->drop(*silent, absl::DeadlineExceededError("it does not answer"));
    for (const std::size_t at : queue.take(now)) ask(at);
    for (auto& [at, given] : lanes->await(kLook)) {
      if (given.ok()) {
        TY_RETURN_IF_ERROR(taken(take, chunks[at].chunk, *std::move(given)));
        queue.onArrived(at, clock.now());
      } else {
        last = std::string(fromAbsl(given.status().message()));
        queue.onFailed(at, clock.now());
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::ps
