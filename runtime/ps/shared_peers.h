// Memory that other processes of this machine let this one read (SharedPool is their side).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "base/core/status.h"
#include "base/process/shared_memory.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// Files by their ids, each mapped once as long as somebody reads it. Thread-safe.
class SharedFiles {
 public:
  // UNAVAILABLE: another file is there, as where the process is on another machine;
  // INVALID_ARGUMENT: too short to be one; else errors as of SharedMemory::open.
  StatusOr<std::shared_ptr<const SharedMemory>> open(const v1::SharedFile& file);

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<const SharedMemory>> files_;
};

// Bytes to be read, and what keeps them mapped.
struct SharedPart {
  std::span<const std::byte> bytes;
  std::shared_ptr<const SharedMemory> memory;
};

// What one process lets us read, as long as this lives. Owned by one thread.
class SharedPeer {
 public:
  // `files` must outlive it.
  explicit SharedPeer(SharedFiles& files) : files_(files) {}

  // It is another process from now on.
  void forget() { opened_.clear(); }
  // Errors as of SharedFiles::open.
  Status open(const v1::SharedFile& file);
  // Floats at `place`, whose file is opened where it was not yet. INVALID_ARGUMENT: not inside of
  // the file.
  StatusOr<SharedPart> part(const v1::SharedPlace& place);

 private:
  SharedFiles& files_;
  std::map<std::uint64_t, std::shared_ptr<const SharedMemory>> opened_;  // by id
};

}  // namespace trainyard::runtime::ps
