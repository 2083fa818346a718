#include "runtime/client/program_group.h"

#include <algorithm>
#include <utility>

#include "base/process/cpus.h"
#include "fmt/format.h"
#include "runtime/client/errors.h"
#include "runtime/collective/hosts.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::client {
namespace {

constexpr Duration kAskEvery = std::chrono::milliseconds(50);
constexpr Duration kLeaveLimit = std::chrono::seconds(1);
constexpr char kLeft[] = "the group has been left";
// For the ring's pieces, the windows of shared memory, and alignment.
constexpr std::size_t kArenaExtra = std::size_t{16} << 20;

// Letters have a mesh of their own, formed right after that of the operations: of the next epoch,
// so that whoever is early is waited for.
std::uint64_t groupEpoch(std::uint64_t epoch) {
  return 2 * epoch + 1;
}
std::uint64_t mailEpoch(std::uint64_t epoch) {
  return 2 * epoch + 2;
}

}  // namespace

ProgramGroup::ProgramGroup(const ProgramGroupOptions& options)
    : options_(options), monitor_(std::make_shared<Monitor>()), queue_(monitor_) {}

ProgramGroup::~ProgramGroup() {
  leave();
}

StatusOr<std::unique_ptr<ProgramGroup>> ProgramGroup::join(const transport::TcpListener* listener,
                                                           const ProgramGroupOptions& options) {
  std::unique_ptr<ProgramGroup> group(new ProgramGroup(options));
  TY_RETURN_IF_ERROR(group->connect(listener));
  return group;
}

collective::GroupOptions ProgramGroup::groupOptions() {
  collective::GroupOptions options;
  options.mesh.rank = options_.rank;
  options.mesh.addresses = options_.addresses;
  options.mesh.token = options_.secret;
  options.mesh.epoch = groupEpoch(options_.epoch);
  options.mesh.timeout = options_.join_timeout;
  options.mesh.cancelled = options_.interrupted;
  options.tcp.cancelled = [this] { return cancelled(); };
  options.collective.timeout = options_.timeout;
  options.collective.deterministic = options_.deterministic;
  options.collective.wire = options_.wire;
  options.share_memory = options_.share_memory;
  options.arena.bytes = options_.arena_bytes + kArenaExtra;
  options.tcp.spin = options.arena.spin = spin();
  options.connected = [this](const transport::TcpMesh& mesh) {
    sockets_.clear();
    for (const transport::TcpMesh::Pair& pair : mesh.pairs) {
      if (pair.out != nullptr) sockets_.add(pair.out->fd());
      if (pair.in != nullptr) sockets_.add(pair.in->fd());
    }
  };
  return options;
}

Status ProgramGroup::connect(const transport::TcpListener* listener) {
  if (size() == 1) {
    // One rank needs no connections; the operations are the same.
    TY_ASSIGN_OR_RETURN(const auto own, transport::TcpListener::listen("127.0.0.1", 0));
    TY_ASSIGN_OR_RETURN(group_, joinGroup(own, groupOptions(), {}));
    return absl::OkStatus();
  }
  if (listener == nullptr) return absl::InvalidArgumentError("a group of several needs a listener");
  TY_ASSIGN_OR_RETURN(group_, joinGroup(*listener, groupOptions(), {}));
  transport::MeshOptions mesh = groupOptions().mesh;
  mesh.epoch = mailEpoch(options_.epoch);
  TY_ASSIGN_OR_RETURN(transport::TcpMesh letters, connectMesh(*listener, mesh));
  for (const transport::TcpMesh::Pair& pair : letters.pairs) {
    if (pair.out != nullptr) sockets_.add(pair.out->fd());
    if (pair.in != nullptr) sockets_.add(pair.in->fd());
  }
  mail_ = std::make_unique<Mail>(std::move(letters), options_.timeout, monitor_);
  return absl::OkStatus();
}

transport::Spin ProgramGroup::spin() const {
  const auto here = collective::hostsOf(options_.addresses, options_.rank).local().size();
  transport::Spin spin = transport::spinAmong(here, availableCpus(usableCores()).cores);
  spin.allowed = [] { return WorkQueue::onCaller(); };
  return spin;
}

bool ProgramGroup::cancelled() {
  if (ending_) return true;
  if (!WorkQueue::onCaller() || !options_.interrupted) return false;
  const TimePoint now = systemClock().now();
  if (now < ask_again_) return false;
  ask_again_ = now + kAskEvery;
  return options_.interrupted();
}

Status ProgramGroup::waitForEver(const Work& work) {
  const auto interrupted = [this] { return options_.interrupted && options_.interrupted(); };
  if (queue_.help(work, interrupted)) return work.status();
  return absl::CancelledError("interrupted while waiting");
}

Status ProgramGroup::carryOut(OperationRef operation) {
  if (!failure_.ok()) return failure_;
  Status done = operation(*group_.collective, staging_);
  if (endsGroup(done)) failure_ = done;
  if (!absl::IsCancelled(done)) return done;
  // The others hear why, instead of finding out that this rank is gone.
  std::string why = "it was interrupted";
  {
    const std::lock_guard lock(aborting_);
    if (!abort_reason_.empty()) why = abort_reason_;
  }
  group_.collective->abort(transport::withBlamedRank(
      absl::CancelledError(fmt::format("rank {}: {}", rank(), why)), rank()));
  return done;
}

std::shared_ptr<Work> ProgramGroup::give(Operation operation) {
  return queue_.add([this, operation = std::move(operation)] { return carryOut(operation); });
}

Status ProgramGroup::run(OperationRef operation) {
  return queue_.run([this, &operation] { return carryOut(operation); });
}

std::shared_ptr<Work> ProgramGroup::send(int to, std::uint64_t tag, const Array& array) {
  return mail_->send(to, tag, array);
}

std::shared_ptr<Work> ProgramGroup::receive(int from, std::uint64_t tag, const Array& into) {
  return mail_->receive(from, tag, into);
}

StatusOr<std::unique_ptr<ProgramGroup>> ProgramGroup::split(const std::vector<int>& ranks) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank());
  const bool joins = place != ranks.end();
  // On the address by which the others know this rank already; on all where that is not its own.
  const std::string& known_as = options_.addresses[static_cast<std::size_t>(rank())].host;
  auto listener = transport::TcpListener::listen(known_as, 0);
  if (!listener.ok()) listener = transport::TcpListener::listen("0.0.0.0", 0);
  TY_RETURN_IF_ERROR(listener.status());
  std::vector<std::int64_t> ports(options_.addresses.size());
  ports[static_cast<std::size_t>(rank())] = listener->port();
  TY_RETURN_IF_ERROR(run([&](Collective& collective, Staging&) {
    return collective.allGather({reinterpret_cast<std::byte*>(ports.data()),
                                 static_cast<std::int64_t>(ports.size()), ElementType::kInt64},
                                Counts(ports.size(), 1));
  }));
  if (!joins) return nullptr;
  ProgramGroupOptions options = options_;
  options.rank = static_cast<int>(place - ranks.begin());
  options.addresses.clear();
  for (const int member : ranks) {
    const auto m = static_cast<std::size_t>(member);
    options.addresses.push_back({options_.addresses[m].host, static_cast<std::uint16_t>(ports[m])});
  }
  return join(&*listener, options);
}

StatusOr<std::byte*> ProgramGroup::allocate(std::size_t bytes) {
  if (group_.arena == nullptr) {
    return absl::ResourceExhaustedError("the ranks of this group do not share memory");
  }
  StatusOr<std::byte*> memory = absl::ResourceExhaustedError("an operation is under way");
  queue_.whileIdle([&] {
    const auto given = group_.arena->allocate(bytes);
    memory = given.ok() ? StatusOr<std::byte*>(given->data()) : given.status();
  });
  return memory;
}

void ProgramGroup::abort(const std::string& why) {
  const Status status = transport::withBlamedRank(
      absl::CancelledError(fmt::format("rank {}: {}", rank(), why)), rank());
  {
    const std::lock_guard lock(aborting_);
    if (abort_reason_.empty()) abort_reason_ = why;
  }
  // What is under way ends by cancelled(), and tells the others then.
  ending_ = true;
  queue_.whileIdle([&] {
    group_.collective->abort(status);
    if (failure_.ok()) failure_ = status;
  });
  queue_.stop(status, systemClock().now());
}

collective::Totals ProgramGroup::totals() {
  collective::Totals totals;
  run([&](Collective& collective, Staging&) {
    totals = collective.totals();
    return absl::OkStatus();
  }).IgnoreError();
  return totals;
}

void ProgramGroup::leave() {
  if (std::exchange(left_, true)) return;
  const Status left = deadHandle(kLeft);
  if (!queue_.stop(left, systemClock().now() + kLeaveLimit)) {
    ending_ = true;
    queue_.stop(left, TimePoint::max());
  }
  queue_.join();
  if (mail_) mail_->close(left);
  sockets_.clear();
  mail_.reset();
  group_ = {};
}

}  // namespace trainyard::runtime::client
