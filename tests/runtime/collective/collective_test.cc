// Every operation, over every transport, for all numbers of ranks, types, reductions and sizes
// around the algorithms' edges; and what it costs by the counters against the formulas.
#include "runtime/collective/collective.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <tuple>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/collective/cost.h"
#include "tests/runtime/collective/ranks.h"

namespace trainyard::runtime::collective {
namespace {

using testing::Group;
using testing::runRanks;
using transport::Algorithm;

// Whole numbers that every type holds exactly, so that the order of addition does not matter. They
// repeat.
constexpr std::int64_t kPeriod = 31;
double valueAt(int rank, std::int64_t i) {
  return static_cast<double>((i * 7 + rank * 13) % kPeriod - 15);
}

// `value` is made of those above. Only their first period is computed: under the thread sanitizer
// all of them take minutes.
std::vector<std::byte> bytesOf(ElementType type, std::int64_t n,
                               const std::function<double(std::int64_t)>& value) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(n) * sizeOf(type));
  for (std::int64_t i = 0; i < std::min(n, kPeriod); ++i) {
    std::byte* at = bytes.data() + static_cast<std::size_t>(i) * sizeOf(type);
    const double v = value(i);
    const auto f = static_cast<float>(v);
    const auto store = [&](auto x) { std::memcpy(at, &x, sizeof(x)); };
    switch (type) {
      case ElementType::kFloat32:
        store(f);
        break;
      case ElementType::kFloat64:
        store(v);
        break;
      case ElementType::kInt32:
        store(static_cast<std::int32_t>(static_cast<std::int64_t>(v)));
        break;
      case ElementType::kInt64:
        store(static_cast<std::int64_t>(v));
        break;
      case ElementType::kFloat16:
      case ElementType::kBFloat16:
        narrowFloats(type, at, reinterpret_cast<const std::byte*>(&f), 1);
        break;
      case ElementType::kUint8:
      case ElementType::kInt8:
        store(static_cast<std::uint8_t>(static_cast<std::int64_t>(v)));
        break;
      case ElementType::kBool:
        store(static_cast<std::uint8_t>(v != 0));
        break;
    }
  }
  for (std::size_t done = kPeriod * sizeOf(type); done < bytes.size(); done *= 2)
    std::memcpy(bytes.data() + done, bytes.data(), std::min(done, bytes.size() - done));
  return bytes;
}

double reduced(Reduction reduction, int ranks, std::int64_t i, bool is_integer) {
  double result = valueAt(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double v = valueAt(r, i);
    if (reduction == Reduction::kMin) result = std::min(result, v);
    if (reduction == Reduction::kMax) result = std::max(result, v);
    if (reduction == Reduction::kSum || reduction == Reduction::kAverage) result += v;
  }
  if (reduction != Reduction::kAverage) return result;
  return is_integer ? std::trunc(result / ranks) : result / ranks;
}

// Those of an all-reduce over messages.
constexpr Algorithm kFlat[] = {Algorithm::kRing, Algorithm::kHalvingDoubling, Algorithm::kDoubling,
                               Algorithm::kDirect};

class EveryGroup : public ::testing::TestWithParam<Group> {
 protected:
  void run(const CollectiveOptions& options, const std::function<Status(Collective&)>& act) {
    const auto results = runRanks(GetParam(), options, act);
    for (std::size_t r = 0; r < results.size(); ++r) {
      EXPECT_TRUE(results[r].ok()) << "rank " << r << ": " << results[r];
    }
  }
  int ranks() const { return GetParam().ranks; }
};

Status expectBytes(const std::vector<std::byte>& got, const std::vector<std::byte>& expected,
                   const std::string& what) {
  if (got == expected) return absl::OkStatus();
  std::size_t at = 0;
  while (got[at] == expected[at]) ++at;
  return absl::InternalError(fmt::format("{}: wrong at byte {} of {}", what, at, got.size()));
}

Status checkAllReduce(Collective& c, ElementType type, Reduction reduction, std::int64_t n) {
  auto bytes = bytesOf(type, n, [&](std::int64_t i) { return valueAt(c.rank(), i); });
  TY_RETURN_IF_ERROR(c.allReduce({bytes.data(), n, type}, reduction));
  const bool is_integer = type == ElementType::kInt32 || type == ElementType::kInt64;
  return expectBytes(
      bytes,
      bytesOf(type, n, [&](std::int64_t i) { return reduced(reduction, c.size(), i, is_integer); }),
      fmt::format("{} of {}", nameOf(type), n));
}

TEST_P(EveryGroup, AllReducesEveryTypeAndReduction) {
  for (const auto algorithm : kFlat) {
    CollectiveOptions options;
    options.algorithm = algorithm;
    run(options, [&](Collective& c) -> Status {
      for (int type = 0; type <= static_cast<int>(ElementType::kInt64); ++type) {
        for (const auto reduction :
             {Reduction::kSum, Reduction::kAverage, Reduction::kMin, Reduction::kMax}) {
          TY_RETURN_IF_ERROR(checkAllReduce(c, static_cast<ElementType>(type), reduction, 103));
        }
      }
      return absl::OkStatus();
    });
  }
}

// What integers of 64 bits give, cut to the type.
std::int64_t reducedBits(Reduction reduction, ElementType type, int ranks, std::int64_t i) {
  const auto at = [&](int r) -> std::int64_t {
    const auto v = static_cast<std::int64_t>(valueAt(r, i));
    if (type == ElementType::kBool) return v != 0;
    return type == ElementType::kUint8 ? static_cast<std::uint8_t>(v) : v;
  };
  std::int64_t result = at(0);
  for (int r = 1; r < ranks; ++r) {
    const std::int64_t v = at(r);
    if (reduction == Reduction::kSum) result += v;
    if (reduction == Reduction::kMin) result = std::min(result, v);
    if (reduction == Reduction::kMax) result = std::max(result, v);
    if (reduction == Reduction::kProduct) result *= v;
    if (reduction == Reduction::kBitAnd) result &= v;
    if (reduction == Reduction::kBitOr) result |= v;
    if (reduction == Reduction::kBitXor) result ^= v;
  }
  return result;
}

TEST_P(EveryGroup, ReducesSmallTypesProductsAndBits) {
  for (const auto algorithm : kFlat) {
    CollectiveOptions options;
    options.algorithm = algorithm;
    run(options, [&](Collective& c) -> Status {
      for (const auto type : {ElementType::kUint8, ElementType::kInt8, ElementType::kBool,
                              ElementType::kInt32, ElementType::kInt64}) {
        for (const auto reduction :
             {Reduction::kSum, Reduction::kMin, Reduction::kMax, Reduction::kProduct,
              Reduction::kBitAnd, Reduction::kBitOr, Reduction::kBitXor}) {
          constexpr std::int64_t kCount = 103;
          auto bytes = bytesOf(type, kCount, [&](std::int64_t i) { return valueAt(c.rank(), i); });
          TY_RETURN_IF_ERROR(c.allReduce({bytes.data(), kCount, type}, reduction));
          const auto expected = bytesOf(type, kCount, [&](std::int64_t i) {
            return static_cast<double>(reducedBits(reduction, type, c.size(), i));
          });
          TY_RETURN_IF_ERROR(expectBytes(
              bytes, expected,
              fmt::format("{}, reduction {}", nameOf(type), static_cast<int>(reduction))));
        }
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(EveryGroup, MultipliesFloats) {
  run({}, [&](Collective& c) -> Status {
    // Powers of two: the order does not matter.
    std::vector<float> x = {c.rank() % 2 == 0 ? 2.0f : 0.5f, -1.0f, 1.0f};
    TY_RETURN_IF_ERROR(c.allReduce(arrayOf(x), Reduction::kProduct));
    const std::vector<float> expected = {c.size() % 2 == 0 ? 1.0f : 2.0f,
                                         c.size() % 2 == 0 ? 1.0f : -1.0f, 1.0f};
    return x == expected ? absl::OkStatus() : absl::InternalError("a wrong product");
  });
}

// A sanitizer watches every access: there the largest array takes minutes, and no other path.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kLargest = 262144 + 5;
#else
constexpr int kLargest = 786432 + 5;
#endif

TEST_P(EveryGroup, AllReducesEverySize) {
  for (const auto algorithm : kFlat) {
    CollectiveOptions options;
    options.algorithm = algorithm;
    run(options, [&](Collective& c) -> Status {
      // None, fewer than ranks, around the size of a segment and of several.
      for (const std::int64_t n : {0, 1, 2, 3, 5, 1023, 65535, 65537, 131072 + 1, kLargest}) {
        TY_RETURN_IF_ERROR(checkAllReduce(c, ElementType::kFloat32, Reduction::kSum, n));
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(EveryGroup, ChoosesAnAlgorithmBySize) {
  run({}, [](Collective& c) -> Status {
    TY_RETURN_IF_ERROR(checkAllReduce(c, ElementType::kFloat32, Reduction::kAverage, 1000));
    TY_RETURN_IF_ERROR(checkAllReduce(c, ElementType::kFloat32, Reduction::kAverage, 20'000));
    return checkAllReduce(c, ElementType::kFloat32, Reduction::kAverage, 1'100'000);
  });
}

TEST_P(EveryGroup, ReducesAndScatters) {
  for (const bool deterministic : {false, true}) {
    CollectiveOptions options;
    options.deterministic = deterministic;
    run(options, [&](Collective& c) -> Status {
      for (const std::int64_t n : {0, 1, 7, 1000, 400'003}) {
        auto bytes =
            bytesOf(ElementType::kFloat32, n, [&](std::int64_t i) { return valueAt(c.rank(), i); });
        const Array array{bytes.data(), n, ElementType::kFloat32};
        TY_RETURN_IF_ERROR(c.reduceScatter(array, Reduction::kSum));
        const Range own = sliceOf(n, c.rank(), c.size());
        const Array mine = array.slice(own.begin, own.end);
        TY_RETURN_IF_ERROR(expectBytes({mine.data, mine.data + mine.bytes()},
                                       bytesOf(ElementType::kFloat32, own.size(),
                                               [&](std::int64_t i) {
                                                 return reduced(Reduction::kSum, c.size(),
                                                                own.begin + i, false);
                                               }),
                                       "slice"));
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(EveryGroup, GathersUnevenPieces) {
  run({}, [](Collective& c) -> Status {
    for (const std::int64_t unit : {0, 1, 17, 90'001}) {
      std::vector<std::int64_t> counts;
      for (int r = 0; r < c.size(); ++r) counts.push_back(r == 1 ? 0 : unit * (r + 1));
      const std::int64_t n = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      const auto expected =
          bytesOf(ElementType::kInt32, n, [](std::int64_t i) { return valueAt(3, i); });
      std::vector<std::byte> bytes(expected.size());
      const Array array{bytes.data(), n, ElementType::kInt32};
      const auto before =
          std::accumulate(counts.begin(), counts.begin() + c.rank(), std::int64_t{0});
      const Array own = array.slice(before, before + counts[static_cast<std::size_t>(c.rank())]);
      std::copy_n(expected.data() + 4 * before, own.bytes(), own.data);  // perhaps nothing
      TY_RETURN_IF_ERROR(c.allGather(array, counts));
      TY_RETURN_IF_ERROR(expectBytes(bytes, expected, "gathered"));
    }
    return absl::OkStatus();
  });
}

TEST_P(EveryGroup, BroadcastsFromEveryRoot) {
  run({}, [](Collective& c) -> Status {
    for (int root = 0; root < c.size(); ++root) {
      for (const std::int64_t n : {0, 1, 1000, 300'000}) {
        const auto expected =
            bytesOf(ElementType::kFloat64, n, [&](std::int64_t i) { return valueAt(root, i); });
        auto bytes = c.rank() == root ? expected : std::vector<std::byte>(expected.size());
        TY_RETURN_IF_ERROR(c.broadcast({bytes.data(), n, ElementType::kFloat64}, root));
        TY_RETURN_IF_ERROR(expectBytes(bytes, expected, "broadcast"));
      }
    }
    return absl::OkStatus();
  });
}

// Rank s sends s * 3 + r + 1 elements to rank r.
TEST_P(EveryGroup, ExchangesUnevenPieces) {
  run({}, [](Collective& c) -> Status {
    for (const std::int64_t unit : {1, 20'000}) {
      const auto count = [&](int s, int r) { return unit * (s * 3 + r + 1); };
      std::vector<std::int64_t> send_counts;
      std::vector<std::int64_t> receive_counts;
      std::int64_t total = 0;
      for (int r = 0; r < c.size(); ++r) {
        send_counts.push_back(count(c.rank(), r));
        receive_counts.push_back(count(r, c.rank()));
        for (int s = 0; s < c.size(); ++s) total += count(s, r);
      }
      std::vector<float> send;
      std::vector<float> expected;
      for (int r = 0; r < c.size(); ++r) {
        send.insert(send.end(), static_cast<std::size_t>(count(c.rank(), r)),
                    static_cast<float>(100 * c.rank() + r));
        expected.insert(expected.end(), static_cast<std::size_t>(count(r, c.rank())),
                        static_cast<float>(100 * r + c.rank()));
      }
      std::vector<float> receive(expected.size());
      TY_RETURN_IF_ERROR(
          c.allToAll(arrayOf(send), send_counts, arrayOf(receive), receive_counts, total));
      if (receive != expected) return absl::InternalError("wrong pieces");
    }
    return absl::OkStatus();
  });
}

TEST_P(EveryGroup, BarrierHoldsUntilAllHaveCome) {
  std::atomic<int> come{0};
  run({}, [&](Collective& c) -> Status {
    for (int round = 1; round <= 20; ++round) {
      ++come;
      TY_RETURN_IF_ERROR(c.barrier());
      if (come.load() < round * c.size()) return absl::InternalError("a barrier let go too early");
      TY_RETURN_IF_ERROR(c.barrier());
    }
    return absl::OkStatus();
  });
}

// Numbers whose sum depends on the order of addition.
float roughAt(int rank, std::int64_t i) {
  return std::ldexp(1.0f + static_cast<float>((i * 31 + rank * 17) % 1009) / 1009.0f,
                    static_cast<int>((i + rank * 5) % 40) - 20) *
         ((i + rank) % 3 == 0 ? -1.0f : 1.0f);
}

TEST_P(EveryGroup, DeterministicAddsInTheOrderOfRanks) {
  CollectiveOptions options;
  options.deterministic = true;
  run(options, [](Collective& c) -> Status {
    for (const std::int64_t n : {1, 1000, 300'001}) {
      std::vector<float> x(static_cast<std::size_t>(n));
      std::vector<float> expected(x.size());
      for (std::int64_t i = 0; i < n; ++i) {
        x[static_cast<std::size_t>(i)] = roughAt(c.rank(), i);
        volatile float sum = roughAt(0, i);
        for (int r = 1; r < c.size(); ++r) sum = sum + roughAt(r, i);
        expected[static_cast<std::size_t>(i)] = sum;
      }
      TY_RETURN_IF_ERROR(c.allReduce(arrayOf(x), Reduction::kSum));
      if (std::memcmp(x.data(), expected.data(), 4 * x.size()) != 0) {
        return absl::InternalError(fmt::format("other bits at {} elements", n));
      }
    }
    return absl::OkStatus();
  });
}

// All ranks end with the same bits, whatever the algorithm and whatever is on the wire.
TEST_P(EveryGroup, AllRanksGetTheSameBits) {
  std::vector<CollectiveOptions> all(6);
  all[0].algorithm = Algorithm::kRing;
  all[1].algorithm = Algorithm::kHalvingDoubling;
  all[2].deterministic = true;
  all[3].wire = ElementType::kFloat16;
  all[4].wire = ElementType::kBFloat16;
  all[5].algorithm = Algorithm::kDoubling;
  for (const CollectiveOptions& options : all) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks()));
    run(options, [&](Collective& c) -> Status {
      std::vector<float>& x = results[static_cast<std::size_t>(c.rank())];
      for (std::int64_t i = 0; i < 70'001; ++i) x.push_back(roughAt(c.rank(), i) * 0.001f);
      return c.allReduce(arrayOf(x), Reduction::kAverage);
    });
    for (const auto& x : results) {
      EXPECT_EQ(std::memcmp(x.data(), results[0].data(), 4 * x.size()), 0);
    }
  }
}

// In shared memory nothing travels, so nothing is rounded.
TEST_P(EveryGroup, HalfFloatsOnTheWireAreRoundedTwice) {
  const bool shared = GetParam().over == testing::Over::kShared;
  for (const auto wire : {ElementType::kFloat16, ElementType::kBFloat16}) {
    CollectiveOptions options;
    options.wire = wire;
    run(options, [&](Collective& c) -> Status {
      const std::int64_t n = 5003;
      std::vector<float> x(static_cast<std::size_t>(n));
      std::vector<float> expected(x.size());
      const auto value = [](int rank, std::int64_t i) {
        return 1.0f + static_cast<float>((i * 37 + rank * 11) % 997) / 997.0f;
      };
      const auto rounded = [&](float v) {
        if (shared) return v;
        std::uint16_t narrow;
        float wide;
        narrowFloats(wire, reinterpret_cast<std::byte*>(&narrow),
                     reinterpret_cast<const std::byte*>(&v), 1);
        widenFloats(wire, reinterpret_cast<std::byte*>(&wide),
                    reinterpret_cast<const std::byte*>(&narrow), 1);
        return wide;
      };
      for (std::int64_t i = 0; i < n; ++i) {
        x[static_cast<std::size_t>(i)] = value(c.rank(), i);
        float sum = rounded(value(0, i));
        for (int r = 1; r < c.size(); ++r) sum += rounded(value(r, i));
        expected[static_cast<std::size_t>(i)] = rounded(sum);
      }
      if (c.size() == 1) return absl::OkStatus();  // nothing travels
      TY_RETURN_IF_ERROR(c.allReduce(arrayOf(x), Reduction::kSum));
      return x == expected ? absl::OkStatus() : absl::InternalError("not the sum of the rounded");
    });
  }
}

TEST_P(EveryGroup, RefusesArgumentsThatDoNotFit) {
  run({}, [](Collective& c) -> Status {
    std::vector<float> x(10);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(c.size()), 11);
    const std::vector<std::int64_t> fewer(static_cast<std::size_t>(c.size() - 1), 0);
    for (const Status& refused : {c.allGather(arrayOf(x), counts), c.allGather(arrayOf(x), fewer),
                                  c.broadcast(arrayOf(x), c.size()), c.broadcast(arrayOf(x), -1)}) {
      if (refused.code() != absl::StatusCode::kInvalidArgument) {
        return absl::InternalError("accepted");
      }
    }
    return c.barrier();  // and the group goes on
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, EveryGroup, ::testing::ValuesIn(testing::groups()),
                         [](const auto& info) { return nameOf(info.param); });

}  // namespace
}  // namespace trainyard::runtime::collective
