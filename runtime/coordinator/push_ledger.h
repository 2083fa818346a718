// What a successor of PushTickets needs to go on as it would have: the ledger as it was when the
// epoch began, which every member has with the epoch, and what has become of it since, which the
// members tell. Values; no time.
//
// A ticket is used when its push has reached a chunk, or when its worker lives and holds it. What
// was answered to nobody who lives, and reached no chunk, is given again. So it is with samples.
// This is complete: a push that its worker knows to be finished is in every chunk, and each chunk
// is held twice; one that is not finished is in the hands of its worker, or that worker has died.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/number_set.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime {

// PushTickets when an epoch begins.
struct PushLedger {
  struct Worker {
    std::uint32_t index = 0;
    std::int64_t clock = 0;
    std::optional<std::int64_t> carried;  // ticket
    std::optional<SampleRange> lease;     // without a ticket
  };
  std::int64_t given = 0;
  std::vector<std::int64_t> returned;
  std::int64_t position = 0;
  std::vector<SampleRange> pool;
  std::vector<Worker> workers;
  std::int64_t spread = 0;
  std::int64_t partial = 0;
};

// `position` is the epoch's own field.
PushLedger ledgerOf(const v1::EpochInfo& epoch);
void writeLedger(const PushLedger& ledger, v1::EpochInfo& epoch);

// What has happened under that epoch, and before.
struct PushNews {
  // Of pushes that have reached a chunk that is left.
  NumberSet tickets;
  NumberSet samples;
  // Of the epoch's workers those whose processes live.
  struct Worker {
    std::uint32_t index = 0;
    bool began = false;  // it knows that the epoch has begun: may have asked under it
    std::int64_t finished = 0;
    std::optional<std::int64_t> pushing;  // ticket
    SampleRange own;                      // its samples
    std::optional<SampleRange> lease;     // in hand, without a ticket
  };
  std::vector<Worker> workers;
};

}  // namespace trainyard::runtime
