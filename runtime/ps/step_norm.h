// Clipping: a server's part of the norm of a step's mean gradient. A chunk whose mean is complete
// waits here until the norm over all chunks of all servers is known, and is updated then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/tensor/square_sum.h"
#include "trainyard/v1/coordinator.pb.h"

namespace trainyard::runtime::ps {

// Thread-safe; its lock is the last to be taken.
class StepNorm {
 public:
  // For a server with `chunks` chunks; `alone` when no other server has any: then its own sum is
  // the whole one. clip_norm 0: no clipping, nothing is ever added.
  StepNorm(double clip_norm, std::size_t chunks, bool alone);
  bool clips() const { return clip_norm_ > 0; }
  // The server's chunks are others now. Nothing of a step in progress is kept.
  void setChunks(std::size_t chunks, bool alone);

  // The mean gradient of a chunk in `step` is complete; once for each chunk and step. Steps follow
  // one another: the first chunk of a step proves that no server needs the former one any more,
  // since a worker that sends it has received the whole new version.
  void add(std::size_t chunk, std::int64_t step, const SquareSum& squares);
  // True once for each step that has become complete here and that the coordinator must hear of.
  bool takeUrgent();
  // For the coordinator: the sum of the newest step that is complete here. It is kept when the
  // chunks are updated: other servers may not have been told the norm yet when an epoch ends.
  std::optional<v1::SquareSum> part() const;
  // The norm over all servers, of the step that waits, or of the next: where some chunks have taken
  // a step in an earlier epoch, the norm that they took it with is told before the others are here.
  void setNorm(std::int64_t step, double norm);

  // What to multiply a mean gradient with: 1, or clip_norm / norm (divided in double, then rounded
  // to float32) where the norm is larger.
  struct Update {
    std::size_t chunk = 0;
    double norm = 0;
    float scale = 1;
  };
  // A chunk to be updated now, each once.
  std::optional<Update> next();

  // An epoch ends: a step that was not updated will be pushed again.
  void drop();
  // The chunks were loaded anew.
  void clear();

 private:
  void reset(std::int64_t step);

  const double clip_norm_;
  std::size_t chunks_;
  bool alone_;
  mutable std::mutex mutex_;
  std::int64_t step_ = -1;
  std::size_t added_ = 0;  // chunks in `sum_`
  SquareSum sum_;
  std::vector<std::size_t> waiting_;  // not yet updated
  std::optional<double> norm_;
  struct Told {
    std::int64_t step = -1;
    double norm = 0;
  };
  Told told_;  // last
  bool urgent_ = false;
};

}  // namespace trainyard::runtime::ps
