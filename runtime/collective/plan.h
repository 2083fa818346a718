// Which tensors are reduced, in which order and together with which: fixed before the first step,
// and the same on all ranks, which is checked when a group forms instead of being negotiated at
// every step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/collective/collective.h"

namespace trainyard::runtime::collective {

struct PlannedTensor {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::int64_t elements = 0;
  // Above 0: a matrix of as many rows, of which each rank has few in a step; see sparse.h.
  std::int64_t rows = 0;
  bool operator==(const PlannedTensor&) const = default;
};

// Tensors that are reduced by one operation: they lie one after the other in one buffer.
struct Bucket {
  ElementType type = ElementType::kFloat32;
  std::int64_t elements = 0;
  struct Part {
    std::size_t tensor = 0;   // index into the plan
    std::int64_t offset = 0;  // in elements, from the bucket's start
  };
  std::vector<Part> parts;
};

// Few operations cost fewer rounds, small ones can begin earlier in the backward pass: a small
// first bucket, then large ones. (S. Li et al., "PyTorch Distributed", VLDB 2020, 3.2.3.)
struct BucketSizes {
  std::int64_t first_bytes = std::int64_t{1} << 20;
  std::int64_t bytes = std::int64_t{25} << 20;
};

// Buckets in the order of `tensors`, which is that in which gradients become ready. A bucket is
// closed when the next tensor is of another type or would make it larger than it should be; a
// tensor is never cut. Those that are summed by rows are in none. Pure.
std::vector<Bucket> planBuckets(std::span<const PlannedTensor> tensors, const BucketSizes& sizes);

// "" when they are the same, else the first difference: "tensor 3 is fc1_wei of 10 float32 on rank
// 0 and fc1_bia of 10 float32 on rank 2". Pure.
std::string differenceOf(std::span<const PlannedTensor> first, int first_rank,
                         std::span<const PlannedTensor> second, int second_rank);

// Every rank calls it with its plan. FAILED_PRECONDITION on all ranks, blaming the lowest rank that
// differs from rank 0 and saying in what, unless all are the same. Costs one all-gather of 64 bytes
// a rank; a second one of the plans themselves only where they differ.
Status comparePlans(Collective& collective, std::span<const PlannedTensor> plan);

}  // namespace trainyard::runtime::collective
