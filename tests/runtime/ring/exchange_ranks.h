// Exchanges of ranks that are threads of this process, over real sockets and shared memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/ring/exchange.h"
#include "runtime/stream/tls_stream.h"

namespace trainyard::runtime::ring {

inline const std::vector<collective::PlannedTensor> kTensors = {
    {"c", ElementType::kFloat32, 5},
    {"b", ElementType::kFloat32, 70'000},
    {"a", ElementType::kFloat32, 3}};

// kHosts: rank 0, and the others.
enum class Where { kTcp, kTls, kShared, kHosts };

struct Ranks {
  Ranks(int size, Where where, std::optional<ElementType> wire = {},
        const std::vector<std::int64_t>& sizes_to_try = {},
        std::vector<collective::PlannedTensor> planned = kTensors)
      : tensors(std::move(planned)) {
    for (int r = 0; r < size; ++r) {
      ExchangeOptions& options = options_of.emplace_back();
      // Ranks share memory with those of their address.
      const int host = where == Where::kShared ? 0 : where == Where::kHosts ? std::min(r, 1) : r;
      options.bind = "127.0.0." + std::to_string(host + 1);
      options.token = "token";
      if (where == Where::kTls) {
        options.encryption = *stream::TlsContext::make(deriveRuntimeKeys("token").control);
      }
      options.deterministic = where != Where::kHosts;
      options.wire = wire;
      options.buckets = {64, 1 << 20};
      options.sizes_to_try = sizes_to_try;
      place.addresses.emplace_back();
      exchanges.emplace_back();
      replace(r);
    }
    place.epoch = 1;
  }
  // By a rank that knows nothing, with what `tensors` are now.
  void replace(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    auto made =
        Exchange::make(options_of[r], tensors, [this](std::int64_t) { return cancel.load(); });
    ASSERT_TRUE(made.ok()) << made.status();
    place.addresses[r] = {options_of[r].bind, (*made)->port()};
    exchanges[r] = std::move(*made);
  }
  // `act` for each rank in a thread of its own; what it returned.
  std::vector<Status> run(const std::function<Status(Exchange&, int)>& act) {
    std::vector<Status> results(exchanges.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < exchanges.size(); ++r) {
      threads.emplace_back([&, r] { results[r] = act(*exchanges[r], static_cast<int>(r)); });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  Status join(Exchange& exchange, int rank) const {
    RingPlace own = place;
    own.rank = rank;
    return exchange.join(own);
  }

  std::vector<collective::PlannedTensor> tensors;
  std::atomic<bool> cancel = false;
  RingPlace place;
  std::vector<ExchangeOptions> options_of;  // by rank
  std::vector<std::unique_ptr<Exchange>> exchanges;
};

inline std::string nameOf(const testing::TestParamInfo<Where>& info) {
  switch (info.param) {
    case Where::kTcp:
      return "Tcp";
    case Where::kTls:
      return "Tls";
    case Where::kShared:
      return "Shared";
    case Where::kHosts:
      return "Hosts";
  }
  return "";
}

}  // namespace trainyard::runtime::ring
