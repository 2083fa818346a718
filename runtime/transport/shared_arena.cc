#include "runtime/transport/shared_arena.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "base/security/random.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace trainyard::runtime::transport {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kArenaMagic = 0x3241524E45524154;  // "TARENRA2"
// How long a sleeper goes without a look at who is lost.
constexpr Duration kSleep = std::chrono::milliseconds(5);
constexpr std::size_t kWhy = 160;
// Before a core is offered to others: some microseconds.
constexpr int kLooks = 64;

std::size_t toPages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void futexWait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Duration limit) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = limit.count()};
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &timeout, nullptr,
            0);
}
void futexWake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, kMaxRanks, nullptr,
            nullptr, 0);
}

// What ranks tell each other while setting up: fixed sizes, so that receives can be posted.
struct Told {
  std::uint64_t nonce = 0;
  std::uint64_t bytes = 0;
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  char why[kWhy] = {};  // it could not be made, or another rank's not mapped; else ""
};
static_assert(std::is_trivially_copyable_v<Told>);

void copyText(std::string_view text, std::span<char> to) {
  const std::size_t n = std::min(text.size(), to.size() - 1);
  std::memcpy(to.data(), text.data(), n);
  to[n] = '\0';
}

// Everyone's `mine`, by rank.
StatusOr<std::vector<Told>> exchange(Transport& transport, const Told& mine, std::uint32_t part,
                                     const Wait& wait) {
  std::vector<Told> all(static_cast<std::size_t>(transport.size()));
  all[static_cast<std::size_t>(transport.rank())] = mine;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> numbers(all.size());
  for (int r = 0; r < transport.size(); ++r) {
    if (r == transport.rank()) continue;
    Told& theirs = all[static_cast<std::size_t>(r)];
    numbers[static_cast<std::size_t>(r)] = {
        transport.send(r, {*wait.operation, part}, std::as_bytes(std::span(&mine, 1))),
        transport.receive(r, {*wait.operation, part},
                          {reinterpret_cast<std::byte*>(&theirs), sizeof(Told), std::nullopt})};
  }
  for (int r = 0; r < transport.size(); ++r) {
    if (r == transport.rank()) continue;
    const auto [sent, received] = numbers[static_cast<std::size_t>(r)];
    TY_RETURN_IF_ERROR(transport.waitReceived(r, received, wait));
    TY_RETURN_IF_ERROR(transport.waitSent(r, sent, wait));
  }
  return all;
}

Status noneOf(const std::vector<Told>& all) {
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].why[0] != '\0') lines.push_back(fmt::format("rank {}: {}", r, all[r].why));
  }
  if (lines.empty()) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("no shared memory: {}", fmt::join(lines, "; ")));
}

int placeAmong(const std::vector<int>& members, int rank) {
  const auto at = std::find(members.begin(), members.end(), rank);
  TY_CHECK(at != members.end(), "a rank shares its own memory");
  return static_cast<int>(at - members.begin());
}

}  // namespace

// The first page of a part.
struct SharedArena::Header {
  std::uint64_t magic;
  std::uint64_t nonce;
  std::uint64_t bytes;
  std::atomic<std::uint32_t> sleepers;  // until the owner comes to a meeting
  // What the owner offers, and in the same cache line that it has come: a core fetches both at
  // once.
  struct alignas(64) Place {
    Offer offer;
    std::atomic<std::uint32_t> come;  // to this meeting
  };
  // By the last bit of the meeting's number: a rank is never more than one meeting ahead.
  Place places[2];
};

SharedArena::SharedArena(const Transport& transport, const ArenaOptions& options,
                         std::vector<int> members)
    : members_(std::move(members)),
      place_(placeAmong(members_, transport.rank())),
      options_(options),
      bytes_(toPages(options.bytes)),
      parts_(members_.size()) {
  static_assert(sizeof(Header) <= kPage && sizeof(Header::Place) == 64);
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
}

SharedArena::Header& SharedArena::header(int place) const {
  return *reinterpret_cast<Header*>(parts_[static_cast<std::size_t>(place)]->data());
}

std::byte* SharedArena::part(int place) const {
  return parts_[static_cast<std::size_t>(place)]->data() + kPage;
}

Status SharedArena::makeOwn(std::uint64_t nonce) {
  TY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::create("trainyard-arena", kPage + bytes_));
  parts_[static_cast<std::size_t>(place_)].emplace(std::move(memory));
  Header& own = *std::construct_at(&header(place_));
  own.magic = kArenaMagic;
  own.nonce = nonce;
  own.bytes = bytes_;
  // As of the meetings before the first of each place.
  own.places[0].come = 0;
  own.places[1].come = ~std::uint32_t{0};
  return absl::OkStatus();
}

Status SharedArena::mapPeer(int place, pid_t pid, int fd, std::uint64_t nonce) {
  const auto at = static_cast<std::size_t>(place);
  const std::string name = fmt::format("memory of rank {}", members_[at]);
  StatusOr<SharedMemory> memory = SharedMemory::open(pid, fd, kPage + bytes_);
  if (!memory.ok()) return annotate(memory.status(), name);
  parts_[at].emplace(*std::move(memory));
  // The number of a process can be another's on another machine.
  if (header(place).magic != kArenaMagic || header(place).nonce != nonce) {
    return absl::UnavailableError(name + ": another arena is there");
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<SharedArena>> SharedArena::create(Transport& transport,
                                                           const ArenaOptions& options,
                                                           std::vector<int> members) {
  if (members.empty()) {
    members.resize(static_cast<std::size_t>(transport.size()));
    std::iota(members.begin(), members.end(), 0);
  }
  std::unique_ptr<SharedArena> arena(new SharedArena(transport, options, std::move(members)));
  const Operation set_up;
  const Wait wait{systemClock().now() + options.timeout, &set_up, 0};
  Told mine;
  mine.bytes = arena->bytes_;
  const std::string nonce = randomHex(8);
  std::from_chars(nonce.data(), nonce.data() + nonce.size(), mine.nonce, 16);
  if (const Status made = arena->makeOwn(mine.nonce); made.ok()) {
    mine.pid = ::getpid();
    mine.fd = arena->parts_[static_cast<std::size_t>(arena->place_)]->fd();
  } else {
    copyText(fromAbsl(made.message()), mine.why);
  }
  TY_ASSIGN_OR_RETURN(const std::vector<Told> all, exchange(transport, mine, 0, wait));
  Told mapped;
  const auto count = static_cast<int>(arena->members_.size());
  for (int place = 0; place < count && mapped.why[0] == '\0'; ++place) {
    const int r = arena->members_[static_cast<std::size_t>(place)];
    const Told& peer = all[static_cast<std::size_t>(r)];
    if (place == arena->place_ || peer.why[0] != '\0') continue;
    Status open = peer.bytes == arena->bytes_
                      ? arena->mapPeer(place, peer.pid, peer.fd, peer.nonce)
                      : absl::UnavailableError(fmt::format("rank {} has {} bytes, this rank {}", r,
                                                           peer.bytes, arena->bytes_));
    if (!open.ok()) copyText(fromAbsl(open.message()), mapped.why);
  }
  TY_ASSIGN_OR_RETURN(const std::vector<Told> seen, exchange(transport, mapped, 1, wait));
  TY_RETURN_IF_ERROR(noneOf(all));
  TY_RETURN_IF_ERROR(noneOf(seen));
  return arena;
}

StatusOr<std::span<std::byte>> SharedArena::allocate(std::size_t bytes) {
  const std::size_t begin = (given_out_ + 63) / 64 * 64;
  if (bytes > bytes_ || begin > bytes_ - bytes) {
    return absl::ResourceExhaustedError(fmt::format("{} bytes of shared memory; {} of {} are left",
                                                    bytes, bytes_ - std::min(begin, bytes_),
                                                    bytes_));
  }
  given_out_ = begin + bytes;
  return std::span(part(place_) + begin, bytes);
}

std::uint64_t SharedArena::offsetOf(const std::byte* p, std::size_t bytes) const {
  const std::byte* begin = part(place_);
  if (std::less<>()(p, begin) || std::less<>()(begin + bytes_, p + bytes)) {
    return Offer::kNotInArena;
  }
  return static_cast<std::uint64_t>(p - begin);
}

const Offer& SharedArena::offer(int place) const {
  return header(place).places[meetings_ & 1].offer;
}

Status SharedArena::meet(const Offer& offer, Transport& transport, const Wait& wait) {
  Header& own = header(place_);
  const std::uint32_t meeting = ++meetings_;
  Header::Place& here = own.places[meeting & 1];
  here.offer = offer;
  // Sequentially consistent, as is the sleeper's order of announcing itself and looking again: one
  // of the two sees the other.
  here.come.store(meeting);
  if (own.sleepers.load() != 0) futexWake(here.come);
  const auto count = static_cast<int>(members_.size());
  for (int k = 1; k < count; ++k) {
    const int place = (place_ + k) % count;
    if (header(place).places[meeting & 1].come.load(std::memory_order_acquire) == meeting) continue;
    TY_RETURN_IF_ERROR(awaitRank(place, meeting, transport, wait));
  }
  return absl::OkStatus();
}

Status SharedArena::awaitRank(int place, std::uint32_t meeting, Transport& transport,
                              const Wait& wait) {
  Header& peer = header(place);
  std::atomic<std::uint32_t>& there = peer.places[meeting & 1].come;
  const int rank = members_[static_cast<std::size_t>(place)];
  OutsideWait outside{.peer = rank, .wait = wait, .start = {}};
  const Duration spin = options_.spin.now();
  for (int spins = 1;; ++spins) {
    const std::uint32_t come = there.load(std::memory_order_acquire);
    if (come == meeting) {
      transport.endWatch(outside);
      return absl::OkStatus();
    }
    // Of this place it was two meetings ago.
    if (come != meeting - 2) {
      const Status wrong =
          withBlamedRank(absl::DataLossError(
                             fmt::format("{}: rank {} left number {} in shared memory, expected {}",
                                         placeOf(wait), rank, come, meeting)),
                         rank);
      transport.abort(wrong);
      return wrong;
    }
    pause();
    const bool looks_on = spin > Duration(0) && !options_.spin.yields;
    if (looks_on && spins % kLooks != 0) continue;
    const TimePoint now = systemClock().now();
    if (outside.start == TimePoint()) outside.start = now;
    if (now - outside.start < spin) {
      ::sched_yield();  // to the one that is waited for, where it is on this core
      continue;
    }
    TY_RETURN_IF_ERROR(transport.watch(outside));
    // It may have come before it left: what it did then is seen once its goodbye is.
    if (transport.hasLeft(rank) && there.load() == come) {
      const Status gone = lostRank(rank, wait, "it left the group");
      transport.abort(gone);
      return gone;
    }
    peer.sleepers.fetch_add(1);
    if (there.load() == come) {
      futexWait(there, come, std::clamp(wait.deadline - now, Duration(0), kSleep));
    }
    peer.sleepers.fetch_sub(1);
  }
}

}  // namespace trainyard::runtime::transport
