// Groups of real processes of which one dies or stops in the middle of an operation: every other
// one returns an error that names it, in time.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "base/core/strings.h"
#include "base/process/pipe.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/collective/device_collective.h"
#include "runtime/collective/hierarchical_collective.h"
#include "runtime/collective/message_collective.h"
#include "runtime/collective/shared_collective.h"
#include "runtime/stream/tls_stream.h"
#include "runtime/transport/tcp_transport.h"

namespace trainyard::runtime::collective {
namespace {

using transport::blamedRank;

enum class Over { kTcp, kShared, kHosts, kDevice };
enum class Fault { kKilled, kStopped };
struct Case {
  std::string name;
  Over over = Over::kTcp;
  Fault fault = Fault::kKilled;
  // The victim's fault comes at this wait of its operation; shared memory: 0 before it comes to the
  // operation, 1 between the operation's two meetings; a device: 1 when it has begun. kLast: at the
  // last of its waits; kBefore: the victim does not come to the operation.
  int phase = 0;
  int victim = 1;
  // What is going on.
  std::function<Status(Collective&, const Array&)> act;
  CollectiveOptions options = {};
  std::vector<int> hosts = {0, 0, 1, 1};  // of kHosts: that of each rank
  bool encrypted = false;
};

constexpr int kLast = -1;
constexpr int kBefore = -2;
constexpr int kRanks = 4;
constexpr std::int64_t kElements = 400'000;
// A stopped rank is noticed after this; far longer than a busy machine holds up a running one.
constexpr Duration kTimeout = std::chrono::seconds(12);
// Against hangs only.
constexpr Duration kLimit = std::chrono::seconds(100);

void strike(Fault fault) {
  ::kill(::getpid(), fault == Fault::kKilled ? SIGKILL : SIGSTOP);
}

// Strikes at the n-th wait, or at the one that was the last before it was armed.
class StrikingTransport : public transport::Transport {
 public:
  StrikingTransport(std::unique_ptr<transport::Transport> real, const bool& armed, int at,
                    std::function<void()> strike)
      : real_(std::move(real)), armed_(armed), at_(at), strike_(std::move(strike)) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  std::uint64_t send(int peer, const transport::MessageId& id,
                     std::span<const std::byte> bytes) override {
    return real_->send(peer, id, bytes);
  }
  std::uint64_t receive(int peer, const transport::MessageId& id,
                        const transport::Landing& landing) override {
    return real_->receive(peer, id, landing);
  }
  Status waitSent(int peer, std::uint64_t count, const transport::Wait& wait) override {
    count_down();
    return real_->waitSent(peer, count, wait);
  }
  Status waitReceived(int peer, std::uint64_t count, const transport::Wait& wait) override {
    count_down();
    return real_->waitReceived(peer, count, wait);
  }
  Status check() override { return real_->check(); }
  Status watch(transport::OutsideWait& wait) override { return real_->watch(wait); }
  void endWatch(const transport::OutsideWait& wait) override { real_->endWatch(wait); }
  bool hasLeft(int peer) const override { return real_->hasLeft(peer); }
  void abort(const Status& status) override { real_->abort(status); }
  const transport::Counters& counters() const override { return real_->counters(); }

 private:
  void count_down() {
    const int number = waits_[armed_ ? 1 : 0]++;
    if (armed_ && number == (at_ == kLast ? waits_[0] - 1 : at_)) strike_();
  }
  const std::unique_ptr<transport::Transport> real_;
  const bool& armed_;
  const int at_;
  int waits_[2] = {0, 0};  // before it was armed, and since
  const std::function<void()> strike_;
};

// One operation that succeeds, then the one in which it happens, then more until an error comes.
Status takePart(const Case& c, Collective& collective, bool& armed) {
  std::vector<float> x(kElements, 1.0f);
  TY_RETURN_IF_ERROR(c.act(collective, arrayOf(x)));
  armed = true;
  if (c.phase == kBefore && collective.rank() == c.victim) strike(c.fault);
  for (int i = 0; i < 1000; ++i) TY_RETURN_IF_ERROR(c.act(collective, arrayOf(x)));
  return absl::OkStatus();
}

// The victim in shared memory keeps to the protocol up to its phase.
void playVictim(const Case& c, transport::Transport& tcp, transport::SharedArena& arena) {
  if (c.phase == 1) {
    transport::Offer offer;
    offer.operation = {
        1, transport::Kind::kAllReduce, transport::Algorithm::kDirect, {}, {}, {}, kElements};
    offer.bytes = 4 * kElements;
    (void)arena.meet(offer, tcp, {systemClock().now() + kTimeout, &offer.operation, 0});
  }
  strike(c.fault);
}

// A device that does its first operation and is never done with the second, as one is that waits
// for a rank.
class StuckDevice : public DeviceLibrary, public DeviceCommunicator {
 public:
  explicit StuckDevice(std::function<void()> strike) : strike_(std::move(strike)) {}
  StatusOr<DeviceGroupId> makeId() override { return DeviceGroupId{}; }
  StatusOr<std::unique_ptr<DeviceCommunicator>> join(const DeviceGroupId&, int, int) override {
    return std::make_unique<StuckDevice>(strike_);
  }
  Status enqueue(std::span<const DeviceStep>) override {
    if (++operations_ == 2) strike_();
    return absl::OkStatus();
  }
  StatusOr<bool> poll() override { return operations_ < 2; }
  void abort() override {}

 private:
  const std::function<void()> strike_;
  int operations_ = 0;
};

Status beRankOfHosts(const Case& c, std::unique_ptr<transport::Transport> tcp, bool& armed,
                     const transport::MeshOptions& mesh) {
  const Hosts hosts = hostsOf(mesh.addresses, mesh.rank);
  transport::ArenaOptions arena_options;
  arena_options.bytes = 4 << 20;
  TY_ASSIGN_OR_RETURN(std::shared_ptr<transport::SharedArena> arena,
                      transport::SharedArena::create(*tcp, arena_options, hosts.local()));
  TY_ASSIGN_OR_RETURN(const auto collective,
                      makeHierarchicalCollective(std::move(tcp), arena, hosts, c.options));
  return takePart(c, *collective, armed);
}

Status beRank(const Case& c, int rank, const transport::TcpListener& listener,
              transport::MeshOptions mesh_options) {
  mesh_options.rank = rank;
  TY_ASSIGN_OR_RETURN(transport::TcpMesh mesh, connectMesh(listener, mesh_options));
  std::unique_ptr<transport::Transport> tcp = std::make_unique<transport::TcpTransport>(
      std::move(mesh), transport::TcpOptions{.on_stall = [](const transport::Stall&) {}});
  const bool is_victim = rank == c.victim;
  bool armed = false;
  if (is_victim && c.phase != kBefore && (c.over == Over::kTcp || c.over == Over::kHosts)) {
    tcp = std::make_unique<StrikingTransport>(std::move(tcp), armed, c.phase,
                                              [&] { strike(c.fault); });
  }
  if (c.over == Over::kHosts) return beRankOfHosts(c, std::move(tcp), armed, mesh_options);
  if (c.over == Over::kTcp) {
    return takePart(c, *makeMessageCollective(std::move(tcp), c.options), armed);
  }
  if (c.over == Over::kDevice) {
    StuckDevice device([&] {
      if (is_victim) strike(c.fault);
    });
    DeviceOptions options;
    options.timeout = c.options.timeout;
    TY_ASSIGN_OR_RETURN(const auto collective,
                        makeDeviceCollective(std::move(tcp), device, options));
    return takePart(c, *collective, armed);
  }
  transport::ArenaOptions arena_options;
  arena_options.bytes = 4 << 20;
  TY_ASSIGN_OR_RETURN(std::shared_ptr<transport::SharedArena> arena,
                      transport::SharedArena::create(*tcp, arena_options));
  transport::Transport& alive = *tcp;
  TY_ASSIGN_OR_RETURN(const auto collective,
                      makeSharedCollective(std::move(tcp), arena, c.options));
  if (!is_victim) return takePart(c, *collective, armed);
  std::vector<float> x(kElements, 1.0f);
  TY_RETURN_IF_ERROR(c.act(*collective, arrayOf(x)));
  playVictim(c, alive, *arena);
  return c.act(*collective, arrayOf(x));
}

// A group of forked ranks, and what they said at their end: "rank|code|blamed|message" lines.
class Processes {
 public:
  explicit Processes(const Case& c) : case_(c) {
    transport::MeshOptions mesh;
    mesh.token = "token";
    mesh.epoch = 3;
    if (c.encrypted) {
      mesh.encryption = *stream::TlsContext::make(deriveRuntimeKeys(mesh.token).control);
    }
    std::vector<transport::TcpListener> listeners;
    for (int r = 0; r < kRanks; ++r) {
      const int host = c.over == Over::kHosts ? c.hosts[static_cast<std::size_t>(r)] : 0;
      const std::string address = fmt::format("127.0.0.{}", host + 1);
      auto listener = transport::TcpListener::listen(address, 0);
      if (!listener.ok()) return;
      mesh.addresses.push_back({address, listener->port()});
      listeners.push_back(std::move(*listener));
    }
    auto pipe = makePipe();
    if (!pipe.ok()) return;
    for (int r = 0; r < kRanks; ++r) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        CollectiveOptions options = c.options;
        options.timeout = c.fault == Fault::kStopped ? kTimeout : kLimit;
        Case own = c;
        own.options = options;
        const Status status = beRank(own, r, listeners[static_cast<std::size_t>(r)], mesh);
        const std::string line = fmt::format("{}|{}|{}|{}\n", r, static_cast<int>(status.code()),
                                             status.ok() ? -1 : blamedRank(status).value_or(-1),
                                             std::string(status.message()));
        (void)!::write(pipe->write_end.get(), line.data(), line.size());
        ::_exit(0);
      }
      children_.push_back(pid);
    }
    said_ = std::move(pipe->read_end);
  }

  ~Processes() {
    for (const pid_t pid : children_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  // Until all but the victim have said how they ended.
  std::map<int, std::vector<std::string>> results() {
    std::map<int, std::vector<std::string>> lines;
    std::string text;
    const TimePoint deadline = systemClock().now() + kLimit;
    while (survivors(lines) < kRanks - 1 && waitReadable(said_.get(), deadline)) {
      char bytes[4096];
      const ssize_t n = ::read(said_.get(), bytes, sizeof(bytes));
      if (n <= 0) break;
      text.append(bytes, static_cast<std::size_t>(n));
      for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
        std::vector<std::string> fields;
        for (const std::string_view field : split(std::string_view(text).substr(0, end), '|')) {
          fields.emplace_back(field);
        }
        lines[std::stoi(fields[0])] = fields;
      }
    }
    return lines;
  }

  void expectAllNameTheVictim() {
    const auto lines = results();
    for (int r = 0; r < kRanks; ++r) {
      if (r == case_.victim) continue;
      const auto line = lines.find(r);
      if (line == lines.end()) {
        ADD_FAILURE() << case_.name << ": rank " << r << " did not return";
        continue;
      }
      const std::string& message = line->second[3];
      EXPECT_NE(line->second[1], "0") << case_.name << ": rank " << r;
      EXPECT_EQ(line->second[2], std::to_string(case_.victim))
          << case_.name << ": rank " << r << ": " << message;
      EXPECT_NE(message.find(fmt::format("rank {}", case_.victim)), std::string::npos) << message;
    }
  }

 private:
  int survivors(const std::map<int, std::vector<std::string>>& lines) const {
    return static_cast<int>(lines.size() - lines.count(case_.victim));
  }

  const Case case_;
  std::vector<pid_t> children_;
  UniqueFd said_;
};

Status reduceAll(Collective& c, const Array& array) {
  return c.allReduce(array, Reduction::kSum);
}
Status gatherAll(Collective& c, const Array& array) {
  return c.allGather(array, std::vector<std::int64_t>(kRanks, kElements / kRanks));
}
Status broadcastAll(Collective& c, const Array& array) {
  return c.broadcast(array, 2);
}
Status scatterAll(Collective& c, const Array& array) {
  return c.reduceScatter(array, Reduction::kMax);
}
Status meetAll(Collective& c, const Array&) {
  return c.barrier();
}
Status exchangeAll(Collective& c, const Array& array) {
  std::vector<float> receive(kElements);
  const std::vector<std::int64_t> counts(kRanks, kElements / kRanks);
  return c.allToAll(array, counts, arrayOf(receive), counts, kRanks * kElements);
}

std::vector<Case> cases(Fault fault) {
  CollectiveOptions halving;
  halving.algorithm = transport::Algorithm::kHalvingDoubling;
  CollectiveOptions ring;
  ring.algorithm = transport::Algorithm::kRing;
  CollectiveOptions doubling;
  doubling.algorithm = transport::Algorithm::kDoubling;
  CollectiveOptions direct;
  direct.deterministic = true;
  std::vector<Case> all;
  const auto add = [&](std::string name, Over over, int phase, int victim, auto act,
                       const CollectiveOptions& options = {}) {
    all.push_back({std::move(name), over, fault, phase, victim, act, options});
  };
  add("ring, reducing", Over::kTcp, 1, 1, reduceAll, ring);
  add("ring, gathering", Over::kTcp, 7, 0, reduceAll, ring);
  add("ring, at the end", Over::kTcp, 12, 3, reduceAll, ring);
  add("halving", Over::kTcp, 1, 2, reduceAll, halving);
  add("halving, on the way back", Over::kTcp, 5, 0, reduceAll, halving);
  add("doubling", Over::kTcp, 2, 3, reduceAll, doubling);
  add("direct, pieces", Over::kTcp, 0, 3, reduceAll, direct);
  add("direct, results", Over::kTcp, 7, 1, reduceAll, direct);
  add("all-gather", Over::kTcp, 2, 1, gatherAll);
  add("broadcast", Over::kTcp, 1, 3, broadcastAll);
  add("reduce-scatter", Over::kTcp, 3, 2, scatterAll);
  add("all-to-all", Over::kTcp, 1, 0, exchangeAll);
  add("barrier", Over::kTcp, 0, 1, meetAll);
  add("device, all-reduce", Over::kDevice, 1, 2, reduceAll);
  add("device, all-gather", Over::kDevice, 1, 0, gatherAll);
  add("shared, before", Over::kShared, 0, 1, reduceAll);
  add("shared, between", Over::kShared, 1, 2, reduceAll);
  add("shared, all-gather", Over::kShared, 0, 0, gatherAll);
  add("hosts, before", Over::kHosts, kBefore, 1, reduceAll);
  add("hosts, between them", Over::kHosts, 0, 2, reduceAll);
  add("hosts, further", Over::kHosts, 5, 1, reduceAll);
  add("hosts, at the end", Over::kHosts, kLast, 3, reduceAll);
  add("hosts, broadcast", Over::kHosts, 0, 2, broadcastAll);
  add("hosts, barrier", Over::kHosts, kBefore, 0, meetAll);
  for (const auto& [phase, victim] : {std::pair(1, 1), std::pair(7, 0), std::pair(12, 3)}) {
    add(fmt::format("encrypted ring, rank {}", victim), Over::kTcp, phase, victim, reduceAll, ring);
    all.back().encrypted = true;
  }
  add("encrypted hosts", Over::kHosts, 5, 1, reduceAll);
  all.back().encrypted = true;
  // Of hosts with 3 and 1 ranks: one that only brings its array, a leader, the one that is alone.
  for (const auto& [phase, victim] : {std::pair(kBefore, 2), std::pair(1, 0), std::pair(1, 3)}) {
    add(fmt::format("uneven hosts, rank {}", victim), Over::kHosts, phase, victim, reduceAll);
    all.back().hosts = {0, 0, 0, 1};
  }
  return all;
}

// Some at a time, since the machine has few cores; all at a time where they only wait.
void expectAllCases(Fault fault) {
  const std::vector<Case> all = cases(fault);
  const std::size_t at_a_time = fault == Fault::kKilled ? 6 : all.size();
  for (std::size_t begin = 0; begin < all.size(); begin += at_a_time) {
    std::vector<std::unique_ptr<Processes>> running;
    for (std::size_t i = begin; i < std::min(all.size(), begin + at_a_time); ++i) {
      running.push_back(std::make_unique<Processes>(all[i]));
    }
    for (const auto& processes : running) processes->expectAllNameTheVictim();
  }
}

TEST(FaultTest, AKilledRankIsNamedByAllOthers) {
  expectAllCases(Fault::kKilled);
}

TEST(FaultTest, AStoppedRankIsNamedByAllOthersAtTheDeadline) {
  expectAllCases(Fault::kStopped);
}

}  // namespace
}  // namespace trainyard::runtime::collective
