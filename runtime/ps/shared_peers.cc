#include "runtime/ps/shared_peers.h"

#include <cstring>
#include <utility>

#include "runtime/ps/shared_pool.h"

namespace trainyard::runtime::ps {

StatusOr<std::shared_ptr<const SharedMemory>> SharedFiles::open(const v1::SharedFile& file) {
  if (file.bytes() < sizeof(SharedLabel))
    return absl::InvalidArgumentError("too short to be shared");
  const std::lock_guard lock(mutex_);
  std::erase_if(files_, [](const auto& entry) { return entry.second.expired(); });
  if (auto known = files_[file.id()].lock()) return known;
  TY_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::open(file.pid(), file.fd(), file.bytes(),
                                                              SharedMemory::Access::kRead));
  SharedLabel label;
  std::memcpy(&label, memory.data(), sizeof(label));
  if (label.magic != SharedLabel::kMagic || label.id != file.id())
    return absl::UnavailableError("the memory is somebody else's");
  auto opened = std::make_shared<const SharedMemory>(std::move(memory));
  files_[file.id()] = opened;
  return opened;
}

Status SharedPeer::open(const v1::SharedFile& file) {
  if (opened_.contains(file.id())) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(opened_[file.id()], files_.open(file));
  return absl::OkStatus();
}

StatusOr<SharedPart> SharedPeer::part(const v1::SharedPlace& place) {
  TY_RETURN_IF_ERROR(open(place.file()));
  const auto& memory = opened_.at(place.file().id());
  const std::uint64_t offset = place.offset();
  const std::uint64_t bytes = place.bytes();
  const bool inside = offset >= kSharedAlign && offset % alignof(float) == 0 &&
                      bytes % sizeof(float) == 0 && offset <= memory->bytes() &&
                      bytes <= memory->bytes() - offset;
  if (!inside) return absl::InvalidArgumentError("a place outside of the shared memory");
  return SharedPart{{memory->data() + offset, bytes}, memory};
}

}  // namespace trainyard::runtime::ps
