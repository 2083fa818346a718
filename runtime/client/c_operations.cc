// The C interface: operations, letters, and waiting for them.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "fmt/format.h"
#include "runtime/client/errors.h"
#include "runtime/client/handles.h"
#include "runtime/collective/plan.h"

namespace trainyard::runtime::client {
namespace {

// The numbers of the interface are those of the enums.
static_assert(static_cast<int>(ElementType::kBool) == TY_BOOL && kElementTypes == TY_BOOL + 1);
static_assert(static_cast<int>(ElementType::kInt64) == TY_INT64);

StatusOr<NamedArray> arrayOf(const ty_array* given, const char* what, bool with_data = true) {
  const std::string name = given == nullptr || given->name == nullptr ? "" : given->name;
  const std::string place = name.empty() ? what : fmt::format("{}: tensor '{}'", what, name);
  if (given == nullptr) return absl::InvalidArgumentError(place + ": no array");
  if (given->type < 0 || given->type >= kElementTypes) {
    return absl::InvalidArgumentError(fmt::format("{}: type {}", place, given->type));
  }
  if (given->elements < 0 || (with_data && given->elements > 0 && given->data == nullptr)) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} elements at {}", place, given->elements, given->data));
  }
  return NamedArray{{static_cast<std::byte*>(given->data), given->elements,
                     static_cast<ElementType>(given->type)},
                    name};
}

// Mostly one: an array costs no allocation, which small ones feel.
using NamedArrays = absl::InlinedVector<NamedArray, 1>;

StatusOr<NamedArrays> arraysOf(const ty_array* given, std::size_t count, const char* what,
                               bool with_data = true) {
  if (given == nullptr && count > 0) return absl::InvalidArgumentError("no arrays");
  NamedArrays arrays;
  for (std::size_t i = 0; i < count; ++i) {
    TY_ASSIGN_OR_RETURN(NamedArray array, arrayOf(given + i, what, with_data));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

StatusOr<Reduction> reductionOf(int number) {
  switch (number) {
    case TY_SUM:
      return Reduction::kSum;
    case TY_MIN:
      return Reduction::kMin;
    case TY_MAX:
      return Reduction::kMax;
    case TY_PRODUCT:
      return Reduction::kProduct;
    case TY_BIT_AND:
      return Reduction::kBitAnd;
    case TY_BIT_OR:
      return Reduction::kBitOr;
    case TY_BIT_XOR:
      return Reduction::kBitXor;
    case TY_AVERAGE:
      return Reduction::kAverage;
    default:
      return absl::InvalidArgumentError(fmt::format("reduction {}", number));
  }
}

StatusOr<Reducing> reducingOf(ElementType type, int reduction, double prescale, double postscale) {
  TY_ASSIGN_OR_RETURN(const Reduction known, reductionOf(reduction));
  const Reducing reducing{known, prescale, postscale};
  TY_RETURN_IF_ERROR(checkReducing(type, reducing));
  return reducing;
}

Counts countsOf(const std::int64_t* given, int ranks) {
  return given == nullptr ? Counts() : Counts(given, given + ranks);
}

Status checkGroup(const ty_group* group) {
  return isAlive(group) ? absl::OkStatus()
                        : deadHandle("the group is not of this process, or has been left");
}

Status checkPeer(const ty_group* group, int peer, bool any) {
  TY_RETURN_IF_ERROR(checkGroup(group));
  const int size = group->group->size();
  if (any && peer == -1 && size > 1) return absl::OkStatus();
  if (peer >= 0 && peer < size && peer != group->group->rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("rank {}: letters go to another rank of {}", peer, size));
}

ty_work* handleOf(const ty_group* group, std::shared_ptr<Work> work) {
  return std::make_unique<ty_work>(std::move(work), group->group).release();
}

// Gives the operation, or carries it out where no handle is wanted.
template <typename Operation>
ty_code carryOut(ty_group* group, Operation operation, ty_work** work) {
  if (work == nullptr) return tell(group->group->run(operation));
  *work = handleOf(group, group->group->give(std::move(operation)));
  return TY_OK;
}

// How an operation on the array went, with its name.
Status of(const NamedArray& named, const Status& done) {
  if (done.ok() || named.name.empty()) return done;
  return annotate(done, fmt::format("tensor '{}'", named.name));
}

ty_code waitOrHandle(ty_group* group, std::shared_ptr<Work> done, ty_work** work) {
  if (work != nullptr) {
    *work = handleOf(group, std::move(done));
    return TY_OK;
  }
  return tell(group->group->waitForEver(*done));
}

// A name is a line of a text that ranks compare.
Status checkName(const std::string& name) {
  const bool plain =
      std::none_of(name.begin(), name.end(), [](unsigned char c) { return std::iscntrl(c); });
  return plain ? absl::OkStatus()
               : absl::InvalidArgumentError("ty_compare: a name with a control character");
}

StatusOr<std::vector<collective::PlannedTensor>> planOf(const ty_array* given, std::size_t count) {
  TY_ASSIGN_OR_RETURN(const auto arrays, arraysOf(given, count, "ty_compare", false));
  std::vector<collective::PlannedTensor> plan;
  for (const NamedArray& each : arrays) {
    TY_RETURN_IF_ERROR(checkName(each.name));
    plan.push_back({each.name, each.array.type, each.array.elements, 0});
  }
  return plan;
}

}  // namespace
}  // namespace trainyard::runtime::client

using namespace trainyard;                   // NOLINT: what follows is C
using namespace trainyard::runtime::client;  // NOLINT

extern "C" {

ty_code ty_wait(ty_work* work, double seconds) {
  if (!isAlive(work)) return tell(deadHandle("the work is not of this process"));
  if (!work->work->done()) {
    // Leaving a group finishes its works: without one there is none that is not done.
    const auto group = work->group.lock();
    if (group && seconds < 0) return tell(group->waitForEver(*work->work));
    if (group) group->wait(*work->work, systemClock().now() + durationOf(seconds));
    if (!work->work->done()) return TY_PENDING;
  }
  return tell(work->work->status());
}

int ty_done(const ty_work* work) {
  return !isAlive(work) || work->work->done() ? 1 : 0;
}

void ty_notify(ty_work* work, void (*function)(void* data), void* data) {
  if (isAlive(work)) work->work->notify([function, data] { function(data); });
}

int ty_receive_source(const ty_work* work) {
  return isAlive(work) && work->work->done() ? work->work->source() : -1;
}

void ty_work_free(ty_work* work) {
  if (isAlive(work)) std::unique_ptr<ty_work>(work).reset();
}

ty_code ty_all_reduce(ty_group* group, const ty_array* arrays, size_t count, int reduction,
                      double prescale, double postscale, ty_work** work) {
  if (const Status status = checkGroup(group); !status.ok()) return tell(status);
  auto named = arraysOf(arrays, count, "all_reduce");
  if (!named.ok()) return tell(named.status());
  Reducing reducing;
  for (const NamedArray& each : *named) {
    const auto known = reducingOf(each.array.type, reduction, prescale, postscale);
    if (!known.ok()) return tell(annotate(known.status(), "all_reduce"));
    reducing = *known;
  }
  return carryOut(
      group,
      [named = std::move(*named), reducing](Collective& collective, Staging& staging) {
        return allReduce(collective, named, reducing, staging);
      },
      work);
}

ty_code ty_reduce_scatter(ty_group* group, const ty_array* input, const int64_t* counts,
                          const ty_array* output, int reduction, double prescale, double postscale,
                          ty_work** work) {
  if (const Status status = checkGroup(group); !status.ok()) return tell(status);
  const auto from = arrayOf(input, "reduce_scatter");
  if (!from.ok()) return tell(from.status());
  const auto into = arrayOf(output, "reduce_scatter");
  if (!into.ok()) return tell(into.status());
  const auto reducing = reducingOf(from->array.type, reduction, prescale, postscale);
  if (!reducing.ok()) return tell(annotate(reducing.status(), "reduce_scatter"));
  return carryOut(
      group,
      [from = *from, into = into->array, reducing = *reducing,
       counts = countsOf(counts, group->group->size())](Collective& collective, Staging& staging) {
        return of(from, reduceScatter(collective, from.array, counts, into, reducing, staging));
      },
      work);
}

ty_code ty_all_gather(ty_group* group, const ty_array* input, const ty_array* output,
                      const int64_t* counts, ty_work** work) {
  if (const Status status = checkGroup(group); !status.ok()) return tell(status);
  const auto from = arrayOf(input, "all_gather");
  if (!from.ok()) return tell(from.status());
  const auto into = arrayOf(output, "all_gather");
  if (!into.ok()) return tell(into.status());
  return carryOut(
      group,
      [from = *from, into = into->array, counts = countsOf(counts, group->group->size())](
          Collective& collective, Staging&) {
        return of(from, allGather(collective, from.array, into, counts));
      },
      work);
}

ty_code ty_broadcast(ty_group* group, const ty_array* array, int root, ty_work** work) {
  if (const Status status = checkGroup(group); !status.ok()) return tell(status);
  const auto named = arrayOf(array, "broadcast");
  if (!named.ok()) return tell(named.status());
  return carryOut(
      group,
      [named = *named, root](Collective& collective, Staging&) {
        return of(named, collective.broadcast(named.array, root));
      },
      work);
}

ty_code ty_all_to_all(ty_group* group, const ty_array* send, const int64_t* send_counts,
                      const ty_array* receive, const int64_t* receive_counts, ty_work** work) {
  if (const Status status = checkGroup(group); !status.ok()) return tell(status);
  const auto from = arrayOf(send, "all_to_all");
  if (!from.ok()) return tell(from.status());
  const auto into = arrayOf(receive, "all_to_all");
  if (!into.ok()) return tell(into.status());
  const int ranks = group->group->size();
  return carryOut(
      group,
      [from = *from, into = into->array, sends = countsOf(send_counts, ranks),
       receives = countsOf(receive_counts, ranks)](Collective& collective, Staging&) {
        return of(from, allToAll(collective, from.array, sends, into, receives));
      },
      work);
}

ty_code ty_barrier(ty_group* group, ty_work** work) {
  if (const Status status = checkGroup(group); !status.ok()) return tell(status);
  return carryOut(
      group, [](Collective& collective, Staging&) { return collective.barrier(); }, work);
}

ty_code ty_send(ty_group* group, const ty_array* array, int to, uint64_t tag, ty_work** work) {
  if (const Status status = checkPeer(group, to, false); !status.ok()) return tell(status);
  const auto named = arrayOf(array, "send");
  if (!named.ok()) return tell(named.status());
  return waitOrHandle(group, group->group->send(to, tag, named->array), work);
}

ty_code ty_receive(ty_group* group, const ty_array* array, int from, uint64_t tag, ty_work** work) {
  if (const Status status = checkPeer(group, from, true); !status.ok()) return tell(status);
  const auto named = arrayOf(array, "receive");
  if (!named.ok()) return tell(named.status());
  return waitOrHandle(group, group->group->receive(from, tag, named->array), work);
}

ty_code ty_compare(ty_group* group, const ty_array* arrays, size_t count) {
  if (const Status status = checkGroup(group); !status.ok()) return tell(status);
  auto plan = planOf(arrays, count);
  if (!plan.ok()) return tell(plan.status());
  return tell(group->group->run(
      [&](Collective& collective, Staging&) { return compare(collective, *plan); }));
}

}  // extern "C"
