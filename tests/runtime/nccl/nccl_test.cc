// NCCL's operations beside what they should give, by processes that share what GPUs there are; and
// a rank that dies in the middle. Skipped where there is no GPU.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>

#include "base/process/pipe.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/collective/device_collective.h"
#include "runtime/nccl/cuda_memory.h"
#include "runtime/nccl/nccl_library.h"
#include "runtime/transport/tcp_transport.h"

namespace trainyard::runtime::nccl {
namespace {

using collective::Array;
using collective::arrayOf;
using collective::Collective;
using collective::Range;
using collective::Reduction;

// Against hangs only.
constexpr Duration kLimit = std::chrono::seconds(120);
constexpr std::int64_t kElements = 100'003;

// What `act` says in a process of its own: CUDA must not have begun in one that forks.
class Child {
 public:
  explicit Child(const std::function<std::string()>& act) {
    auto pipe = makePipe();
    if (!pipe.ok()) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string said = act();
      (void)!::write(pipe->write_end.get(), said.data(), said.size());
      ::_exit(0);
    }
    said_ = std::move(pipe->read_end);
  }
  Child(Child&&) = default;
  ~Child() {
    if (pid_ <= 0 || said_.get() < 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  // All of it, at its end.
  std::string said() {
    std::string text;
    const TimePoint deadline = systemClock().now() + kLimit;
    while (waitReadable(said_.get(), deadline)) {
      char bytes[4096];
      const ssize_t n = ::read(said_.get(), bytes, sizeof(bytes));
      if (n <= 0) break;
      text.append(bytes, static_cast<std::size_t>(n));
    }
    return text;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd said_;
};

float valueAt(int rank, std::int64_t i) {
  return static_cast<float>((i * 7 + rank * 13) % 31 - 15);
}

std::vector<float> valuesOf(int rank) {
  std::vector<float> x(kElements);
  for (std::int64_t i = 0; i < kElements; ++i) {
    x[static_cast<std::size_t>(i)] = valueAt(rank, i);
  }
  return x;
}

float expected(Reduction reduction, int ranks, std::int64_t i) {
  float result = valueAt(0, i);
  for (int r = 1; r < ranks; ++r) {
    const float x = valueAt(r, i);
    if (reduction == Reduction::kMin) result = std::min(result, x);
    if (reduction == Reduction::kMax) result = std::max(result, x);
    if (reduction == Reduction::kSum) result += x;
  }
  return result;
}

// Puts this rank's values on the GPU, acts, and compares the elements of `range`.
Status expectOn(CudaMemory& memory, int rank, const Range& range,
                const std::function<Status(const Array&)>& act,
                const std::function<float(std::int64_t)>& wanted) {
  std::vector<float> x = valuesOf(rank);
  TY_RETURN_IF_ERROR(memory.copyFrom(std::as_bytes(std::span(x))));
  TY_RETURN_IF_ERROR(act({memory.data(), kElements}));
  TY_RETURN_IF_ERROR(memory.copyTo(std::as_writable_bytes(std::span(x))));
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const float got = x[static_cast<std::size_t>(i)];
    if (got == wanted(i)) continue;
    return absl::DataLossError(fmt::format("element {}: {} instead of {}", i, got, wanted(i)));
  }
  return absl::OkStatus();
}

Status everything(Collective& c, CudaMemory& memory) {
  const Range all{0, kElements};
  const int ranks = c.size();
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMin, Reduction::kMax}) {
    const auto wanted = [&](std::int64_t i) { return expected(reduction, ranks, i); };
    TY_RETURN_IF_ERROR(expectOn(
        memory, c.rank(), all, [&](const Array& x) { return c.allReduce(x, reduction); }, wanted));
    TY_RETURN_IF_ERROR(expectOn(
        memory, c.rank(), collective::sliceOf(kElements, c.rank(), ranks),
        [&](const Array& x) { return c.reduceScatter(x, reduction); }, wanted));
  }
  const int last = ranks - 1;
  TY_RETURN_IF_ERROR(expectOn(
      memory, c.rank(), all, [&](const Array& x) { return c.broadcast(x, last); },
      [&](std::int64_t i) { return valueAt(last, i); }));
  std::vector<std::int64_t> counts;
  std::vector<int> owner;
  for (int r = 0; r < ranks; ++r) {
    counts.push_back(collective::sliceOf(kElements, r, ranks).size());
    owner.insert(owner.end(), static_cast<std::size_t>(counts.back()), r);
  }
  TY_RETURN_IF_ERROR(expectOn(
      memory, c.rank(), all, [&](const Array& x) { return c.allGather(x, counts); },
      [&](std::int64_t i) { return valueAt(owner[static_cast<std::size_t>(i)], i); }));
  return c.barrier();
}

// A group of `ranks` processes on `gpus` GPUs. NCCL puts several ranks on one only when it takes
// them for those of different hosts.
class Ranks {
 public:
  using Act = std::function<Status(Collective&, CudaMemory&)>;

  Ranks(int ranks, int gpus, const Act& act) {
    transport::MeshOptions mesh;
    mesh.token = "token";
    std::vector<transport::TcpListener> listeners;
    for (int r = 0; r < ranks; ++r) {
      auto listener = transport::TcpListener::listen("127.0.0.1", 0);
      if (!listener.ok()) return;
      mesh.addresses.push_back({"127.0.0.1", listener->port()});
      listeners.push_back(std::move(*listener));
    }
    for (int r = 0; r < ranks; ++r) {
      children_.emplace_back([&] {
        ::setenv("NCCL_HOSTID", std::to_string(r).c_str(), 1);
        mesh.rank = r;
        return be(listeners[static_cast<std::size_t>(r)], mesh, r % gpus, act).ToString();
      });
    }
  }

  std::vector<std::string> said() {
    std::vector<std::string> all;
    for (Child& child : children_) all.push_back(child.said());
    return all;
  }

 private:
  static Status be(const transport::TcpListener& listener, const transport::MeshOptions& options,
                   int device, const Act& act) {
    TY_ASSIGN_OR_RETURN(transport::TcpMesh mesh, connectMesh(listener, options));
    auto tcp = std::make_unique<transport::TcpTransport>(std::move(mesh), transport::TcpOptions());
    TY_ASSIGN_OR_RETURN(CudaMemory memory, CudaMemory::allocate(device, 4 * kElements));
    const auto library = makeNcclLibrary(device);
    TY_ASSIGN_OR_RETURN(const auto group, makeDeviceCollective(std::move(tcp), *library, {}));
    return act(*group, memory);
  }

  std::vector<Child> children_;
};

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string said =
        Child([] {
          const StatusOr<int> gpus = countGpus();
          return gpus.ok() ? std::to_string(*gpus) : std::string(gpus.status().message());
        }).said();
    if (said.starts_with("no GPU")) GTEST_SKIP() << "skipped: " << said;
    gpus_ = std::stoi(said);
  }
  int gpus_ = 0;
};

TEST_F(NcclTest, EveryOperationGivesWhatItShould) {
  for (const int ranks : {1, 2, 3}) {
    for (const std::string& said : Ranks(ranks, gpus_, everything).said()) {
      EXPECT_EQ(said, "OK") << ranks << " ranks";
    }
  }
}

TEST_F(NcclTest, AKilledRankIsNamedByAllOthers) {
  Ranks ranks(3, gpus_, [](Collective& c, CudaMemory& memory) -> Status {
    TY_RETURN_IF_ERROR(everything(c, memory));
    for (int i = 0; i < 100'000; ++i) {
      if (c.rank() == 1 && i == 10) ::kill(::getpid(), SIGKILL);
      TY_RETURN_IF_ERROR(c.allReduce({memory.data(), kElements}, Reduction::kMax));
    }
    return absl::OkStatus();
  });
  const std::vector<std::string> said = ranks.said();
  for (const std::size_t r : {0, 2}) {
    EXPECT_NE(said[r].find("rank 1"), std::string::npos) << r << ": " << said[r];
  }
}

}  // namespace
}  // namespace trainyard::runtime::nccl
