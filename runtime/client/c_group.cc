// The C interface: groups.
#include <algorithm>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "runtime/client/addresses.h"
#include "runtime/client/errors.h"
#include "runtime/client/handles.h"
#include "runtime/client/interrupt.h"

namespace trainyard::runtime::client {
namespace {

StatusOr<std::optional<ElementType>> wireOf(int wire) {
  switch (wire) {
    case TY_NO_TYPE:
      return std::nullopt;
    case TY_FLOAT16:
      return ElementType::kFloat16;
    case TY_BFLOAT16:
      return ElementType::kBFloat16;
    default:
      return absl::InvalidArgumentError(
          fmt::format("ty_join: wire {}; float32 may travel as float16 or bfloat16", wire));
  }
}

Status checkOptions(const ty_group_options* options, const ty_listener* listener) {
  if (options == nullptr || options->bytes != sizeof(ty_group_options)) {
    return absl::InvalidArgumentError("ty_join: ty_group_options of another size");
  }
  if (options->size < 1 || options->size > transport::kMaxRanks || options->rank < 0 ||
      options->rank >= options->size) {
    return absl::InvalidArgumentError(fmt::format("ty_join: rank {} of {}; at most {} ranks",
                                                  options->rank, options->size,
                                                  transport::kMaxRanks));
  }
  if (options->size == 1) return absl::OkStatus();
  if (!isAlive(listener)) return deadHandle("ty_join: the listener is not of this process");
  if (options->secret == nullptr || *options->secret == '\0' || options->addresses == nullptr) {
    return absl::InvalidArgumentError("ty_join: secret and addresses must be given");
  }
  return absl::OkStatus();
}

StatusOr<ProgramGroupOptions> optionsOf(const ty_group_options& given) {
  ProgramGroupOptions options;
  options.rank = given.rank;
  options.secret = given.secret == nullptr ? "" : given.secret;
  for (int r = 0; r < given.size && given.size > 1; ++r) {
    if (given.addresses[r] == nullptr) {
      return absl::InvalidArgumentError(fmt::format("ty_join: no address of rank {}", r));
    }
    TY_ASSIGN_OR_RETURN(auto address, parseAddress(given.addresses[r]));
    options.addresses.push_back(std::move(address));
  }
  if (given.size == 1) options.addresses = {{"127.0.0.1", 1}};
  options.epoch = given.epoch;
  options.join_timeout = durationOf(given.join_seconds);
  options.timeout = durationOf(given.seconds);
  options.share_memory = given.share_memory != 0;
  options.deterministic = given.deterministic != 0;
  TY_ASSIGN_OR_RETURN(options.wire, wireOf(given.wire));
  options.arena_bytes = given.arena_bytes;
  options.interrupted = isInterrupted;
  return options;
}

Status checkRanks(const ProgramGroup& parent, const int* ranks, int count) {
  const bool ascending =
      ranks != nullptr && count > 0 &&
      std::adjacent_find(ranks, ranks + count, std::greater_equal<>()) == ranks + count;
  if (ascending && ranks[0] >= 0 && ranks[count - 1] < parent.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("ty_split: ranks of 0 to {}, ascending, at least one", parent.size() - 1));
}

Status deadGroup() {
  return deadHandle("the group is not of this process, or has been left");
}

}  // namespace
}  // namespace trainyard::runtime::client

using namespace trainyard;                   // NOLINT: what follows is C
using namespace trainyard::runtime::client;  // NOLINT

extern "C" {

ty_code ty_join(const ty_listener* listener, const ty_group_options* options, ty_group** group) {
  if (const Status status = checkOptions(options, listener); !status.ok()) return tell(status);
  const auto wanted = optionsOf(*options);
  if (!wanted.ok()) return tell(wanted.status());
  auto joined = ProgramGroup::join(options->size == 1 ? nullptr : &listener->listener, *wanted);
  if (!joined.ok()) return tell(joined.status(), Stage::kForming);
  *group = std::make_unique<ty_group>(std::move(*joined)).release();
  return TY_OK;
}

void ty_leave(ty_group* group) {
  if (!isAlive(group)) return;
  const std::unique_ptr<ty_group> owned(group);
  owned->group->leave();
}

int ty_rank(const ty_group* group) {
  return isAlive(group) ? group->group->rank() : -1;
}

int ty_size(const ty_group* group) {
  return isAlive(group) ? group->group->size() : -1;
}

ty_code ty_split(ty_group* parent, const int* ranks, int count, ty_group** group) {
  if (!isAlive(parent)) return tell(deadGroup());
  if (const Status status = checkRanks(*parent->group, ranks, count); !status.ok()) {
    return tell(status);
  }
  *group = nullptr;
  auto made = parent->group->split({ranks, ranks + count});
  if (!made.ok()) return tell(made.status(), Stage::kForming);
  if (*made) *group = std::make_unique<ty_group>(std::move(*made)).release();
  return TY_OK;
}

void ty_abort(ty_group* group, const char* why) {
  if (isAlive(group)) group->group->abort(why == nullptr ? "it gave up" : why);
}

ty_code ty_allocate(ty_group* group, size_t bytes, void** memory) {
  if (!isAlive(group)) return tell(deadGroup());
  const auto given = group->group->allocate(bytes);
  if (!given.ok()) return tell(given.status());
  *memory = *given;
  return TY_OK;
}

ty_code ty_group_totals(ty_group* group, ty_totals* totals) {
  if (!isAlive(group)) return tell(deadGroup());
  if (totals == nullptr || totals->bytes != sizeof(ty_totals)) {
    return tell(absl::InvalidArgumentError("ty_group_totals: ty_totals of another size"));
  }
  const auto counted = group->group->totals();
  totals->operations = counted.operations;
  totals->bytes_sent = counted.bytes_sent;
  totals->bytes_received = counted.bytes_received;
  totals->seconds = toSeconds(counted.seconds);
  return TY_OK;
}

}  // extern "C"
