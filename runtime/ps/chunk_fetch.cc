#include "runtime/ps/chunk_fetch.h"

#include <map>
#include <memory>

#include "base/core/strings.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/status_map.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard::runtime::ps {
namespace {

struct Source {
  v1::Incarnation incarnation;
  std::unique_ptr<v1::ShardTransfer::Stub> stub;
};

std::map<int, Source> openSources(const TlsIdentity& identity, const v1::EpochInfo& epoch) {
  const auto credentials = secureClient(identity);
  std::map<int, Source> sources;
  for (const v1::ChunkSource& named : epoch.sources()) {
    Source& source = sources[static_cast<int>(named.ps())];
    source.incarnation = named.incarnation();
    source.stub = v1::ShardTransfer::NewStub(
        openSecureChannel(named.address(), credentials, kRuntimeServerName));
  }
  return sources;
}

}  // namespace

Status fetchChunks(const FetchOptions& options, const v1::EpochInfo& epoch,
                   const std::vector<FetchedChunk>& chunks, const Clock& clock,
                   const TakeChunk& take) {
  if (chunks.empty()) return absl::OkStatus();
  const std::map<int, Source> sources = openSources(options.identity, epoch);
  TimePoint limit = clock.now() + options.patience;
  for (const auto& [chunk, ps, known] : chunks) {
    const auto source = sources.find(ps);
    if (source == sources.end()) {
      return absl::InternalError(
          fmt::format("chunk {} is to come from {}, which epoch {} "
                      "does not name",
                      chunk, serverName(ps), epoch.epoch()));
    }
    v1::FetchChunkRequest request;
    request.set_job_uid(options.job_uid);
    request.set_epoch(epoch.epoch());
    *request.mutable_server() = source->second.incarnation;
    request.set_chunk(chunk);
    if (known >= 0) request.set_known_version(known);
    for (;;) {
      grpc::ClientContext context;
      setDeadline(context, options.call_limit);
      v1::ChunkContents contents;
      const Status status = fromGrpc(source->second.stub->FetchChunk(&context, request, &contents),
                                     fmt::format("{}: chunk {}", serverName(ps), chunk));
      if (status.ok()) {
        TY_RETURN_IF_ERROR(take(chunk, contents));
        limit = clock.now() + options.patience;
        break;
      }
      if (!options.pause()) return absl::CancelledError("the epoch has ended");
      if (clock.now() < limit) continue;
      return absl::DeadlineExceededError(fmt::format("epoch {} is not complete after {:.0f} s: {}",
                                                     epoch.epoch(), toSeconds(options.patience),
                                                     fromAbsl(status.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::ps
