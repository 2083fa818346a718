#include "runtime/ring/state_relay.h"

#include <algorithm>

#include "base/core/failpoint.h"
#include "fmt/format.h"

namespace trainyard::runtime::ring {
namespace {

// At a time: whoever needs none of it has room for no more.
constexpr std::size_t kPiece = std::size_t{16} << 20;

}  // namespace

Status StateRelay::own(const Status& status) {
  if (failure_.ok()) failure_ = status;
  return status;
}

Status StateRelay::read(const v1::EpochInfo& epoch) {
  restored_ = !epoch.fresh() && !epoch.restore_manifest().empty();
  if (!restored_) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(room_, state_.read(epoch.first_step()));
  return absl::OkStatus();
}

Status StateRelay::pass(const v1::EpochInfo& epoch, int rank, bool missing) {
  const bool is_source = rank == static_cast<int>(epoch.source_rank());
  const bool receives = missing && !is_source;
  // The weights begin anew, and nobody can take whoever computes back to his beginning.
  if (is_source && epoch.fresh() && !state_.initial()) {
    return own(absl::UnavailableError(fmt::format(
        "epoch {} begins anew, which a program with state of its own does when it is started again",
        epoch.epoch())));
  }
  TY_ASSIGN_OR_RETURN(const bool wanted, exchange_.any(receives));
  if (wanted) TY_RETURN_IF_ERROR(is_source ? give(epoch) : take(epoch, receives));
  hitFailpoint("ring.state", epoch.first_step());
  const bool loads = receives || (is_source && restored_);
  restored_ = false;
  return loads ? own(state_.load(epoch.first_step())) : absl::OkStatus();
}

// The pieces are copies: what is saved may not be written to.
Status StateRelay::give(const v1::EpochInfo& epoch) {
  ProgramState::Saved saved{.bytes = room_, .owner = nullptr};
  if (!restored_) {
    StatusOr<ProgramState::Saved> asked = state_.save(epoch.first_step());
    if (!asked.ok()) return own(asked.status());
    saved = *std::move(asked);
  }
  std::uint64_t length = saved.bytes.size();
  const auto root = static_cast<int>(epoch.source_rank());
  TY_RETURN_IF_ERROR(exchange_.broadcast(std::as_writable_bytes(std::span(&length, 1)), root));
  for (std::size_t at = 0; at < length; at += kPiece) {
    const auto bytes = saved.bytes.subspan(at, std::min<std::size_t>(kPiece, length - at));
    piece_.assign(bytes.begin(), bytes.end());
    TY_RETURN_IF_ERROR(exchange_.broadcast(std::span(piece_), root));
  }
  piece_ = {};
  return absl::OkStatus();
}

Status StateRelay::take(const v1::EpochInfo& epoch, bool receives) {
  std::uint64_t length = 0;
  const auto root = static_cast<int>(epoch.source_rank());
  TY_RETURN_IF_ERROR(exchange_.broadcast(std::as_writable_bytes(std::span(&length, 1)), root));
  std::span<std::byte> into;
  if (receives) {
    StatusOr<std::span<std::byte>> room = state_.room(length);
    if (!room.ok()) return own(room.status());
    into = *room;
  }
  for (std::size_t at = 0; at < length; at += kPiece) {
    const std::size_t bytes = std::min<std::size_t>(kPiece, length - at);
    if (!receives) piece_.resize(bytes);
    TY_RETURN_IF_ERROR(
        exchange_.broadcast(receives ? into.subspan(at, bytes) : std::span(piece_), root));
  }
  piece_ = {};
  return absl::OkStatus();
}

}  // namespace trainyard::runtime::ring
