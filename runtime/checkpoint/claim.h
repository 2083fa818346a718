// Who writes to a directory of checkpoints. The one who began last does: a coordinator that is cut
// off from the network, but not from the disk, may otherwise commit and prune beside the one that
// has taken its place (a fencing token, as in Kleppmann's "How to do distributed locking", 2016).
//
// A claim is a file of the directory, writer-N.json, made exclusively: N is higher than that of any
// claim before. Its content says from which checkpoint on it began, and the same of former claims.
// What a former writer commits after that is void: nobody reads it (listManifests()), prune()
// removes it. So it does not matter how long a writer was frozen between a look at the claims and
// its commit.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "runtime/checkpoint/names.h"

namespace trainyard::runtime {

struct Manifest;

// One start of the coordinator's home.
struct Writer {
  std::string job_uid;
  std::string task;  // "ps-0"
  std::uint32_t created = 0;
  std::uint32_t start = 0;
};

// From when on a claim held. Manifests that were there then are not later than `newest`.
struct ClaimStart {
  std::int64_t number = 0;
  StepName newest{-1, -1};
};

// What the newest claim of a directory says. Of a directory without one, and where it cannot be
// read: nothing, so that no manifest is void; an error where it may be read later (mayPass()).
class ClaimHistory {
 public:
  static StatusOr<ClaimHistory> read(const std::string& dir);
  ClaimHistory(std::string job_uid, std::vector<ClaimStart> starts)
      : job_uid_(std::move(job_uid)), starts_(std::move(starts)) {}
  // It was committed by a writer in whose place another of the same job had begun before.
  bool isVoid(const Manifest& manifest) const;

 private:
  std::string job_uid_;
  std::vector<ClaimStart> starts_;  // ascending
};

// As readManifests(), with those that are void: what is to be removed.
StatusOr<std::vector<Manifest>> listWithVoid(const std::string& dir,
                                             std::vector<std::string>* problems);

// The claim of one writer to a directory. Blocks for the disk. Not thread-safe.
class Claim {
 public:
  Claim(std::string dir, Writer writer);

  // OK: no other writer has begun since; takes the claim where that has not been done yet. ABORTED
  // names the later writer, and is the answer from then on; any other error is the disk's, and may
  // pass. A writer of the same job and task whose incarnation is not the highest is refused, too.
  Status hold();
  // What manifests of this writer carry (Manifest::writer); 0: not taken yet.
  std::int64_t number() const { return number_; }

 private:
  Status take();

  const std::string dir_;
  const Writer writer_;
  std::int64_t number_ = 0;
  Status lost_;
};

}  // namespace trainyard::runtime
