// Which parameter server holds which part of which variable, and how the parts travel. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/catalog/variable.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// Elements [begin, end) of a flattened variable (row-major).
struct Segment {
  int variable = 0;  // index into Placement::variables
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Segment&) const = default;
};

// Part::axis of a part that Balanced cut: begin and end are elements of the flattened variable.
inline constexpr int kFlatAxis = -1;

// One piece of a variable as the strategy cut it: a slab [begin, end) along `axis`. An uncut
// variable is one part over its whole first axis (axis 0; a scalar is [0, 1)).
struct Part {
  int variable = 0;
  int axis = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int ps = 0;
  std::int64_t bytes = 0;
};

// The unit of transport and of versions: the segments' elements one after the other. Float32 only.
// The grid of chunks does not change while a job runs; only chunk -> ps does.
// Ids ascend in the order in which a backward pass makes chunks ready: the last variable first, a
// chunk of several variables where its first variable stands. Chunks that become ready together
// take turns over the ps, so that workers pushing by id load all ps at once.
struct Chunk {
  std::uint32_t id = 0;  // dense, 0-based; workers push in this order
  int ps = 0;
  std::int64_t elements = 0;
  std::vector<Segment> segments;  // sorted by (variable, begin)
  bool pinned = false;            // a rule names the ps of some of it: stays there
};

// More servers than this have smaller chunks and windows: there a worker has so many bytes of
// requests under way to all of them together (measured with 8 and 16 machines; sync mode).
inline constexpr int kFewServers = 6;
inline constexpr std::int64_t kUnderWayToMany = 3 << 20;

struct Placement {
  int num_ps = 0;
  std::vector<Variable> variables;
  std::vector<Part> parts;    // in the order the strategy placed them
  std::vector<Chunk> chunks;  // trainable variables only; global_step is a part and no chunk
  // Bytes of parts on each ps (what a byte table shows, global_step's 4 included).
  std::vector<std::int64_t> bytes_per_ps;

  // Largest share of the bytes on one ps; 1/num_ps is even (and the answer where all hold none).
  double hotShare() const;
  // Chunks of one ps, by id.
  std::vector<std::uint32_t> chunksOf(int ps) const;
  // -1 where the variables have no global_step.
  int globalStepPs() const;
  // The elements of a part, ascending; neighbouring runs are one segment.
  std::vector<Segment> segmentsOf(const Part& part) const;
};

// Strategies, with TensorFlow's names and arithmetic where it has them; n is num_ps:
//
// RoundRobin: whole variables, the k-th to ps k mod n (replica_device_setter).
//
// FixedSize: each variable cut in `shards` (default n) along `axis`, the first dim % shards parts
// one longer (fixed_size_partitioner), the parts round robin.
//
// MinMax: as many parts as bytes / min_bytes (default 256 KiB), rounded up, at most max_shards
// (default n; min_max_variable_partitioner), the parts round robin.
//
// MaxBytes: parts of at most `bytes`, but at least one slice of the axis
// (variable_axis_size_partitioner), the parts round robin.
//
// Balanced (default): the concatenation of all trainable variables cut into n equal byte ranges. A
// cut moves to a variable's edge within 1/256 of a range, else to the nearest multiple of 16
// elements, so that few small variables are cut and kernels find aligned data.
//
// A variable without the axis stays whole; an axis that no variable has is an error. What is not
// trainable, as global_step, is placed as any other variable but never cut (Balanced: round robin).
//
// Rules come first: the first rule whose glob matches a variable's name decides for it; all other
// variables go by the strategy, in order, as if the ruled ones were not there. The parts that rules
// cut go round robin on a counter of their own.
//
// Chunks lie inside parts. Their target size is D / (16 n) of n servers; where that is above 384
// KiB, D / (32 n) but not less; in any case 64 KiB to 1 MiB. Of more than six servers it is clamp(D
// / (64 n), 64 KiB, clamp(1 MiB / n, 64 KiB, 128 KiB)). Parts below half the target share chunks
// with others of their ps; larger ones are cut into equal chunks of about the target's size up to
// twice that, beginning at multiples of 16 elements. No chunk is above 1 MiB. Only the last small
// parts of a ps make one below 64 KiB (up to 60 bytes less than that by alignment). `max_ps` (>=
// num_ps; 0 means num_ps) stands for n here, so that the grid of chunks outlives a later resizing.
//
// INVALID_ARGUMENT names the field: "placement.rules[1].ps: 3 is not below ps.replicas 2".
StatusOr<Placement> place(const v1::PlacementSpec& spec, const std::vector<Variable>& variables,
                          int num_ps, int max_ps = 0);

// The placement of a job with a built-in model, as every program computes it: the catalogue's
// variables for the implied input, placed on ps.replicas servers with the grid for ps.maxReplicas.
// INVALID_ARGUMENT as of catalogVariables() and place().
StatusOr<Placement> placeJob(const v1::JobSpec& spec);

}  // namespace trainyard::runtime
