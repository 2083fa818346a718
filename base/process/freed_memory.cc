#include "base/process/freed_memory.h"

#include <malloc.h>

#include <limits>

namespace trainyard {

void keepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
  // What one thread frees is another's to take: of two arenas the one would keep whole checkpoints
  // that the other needs memory for.
  mallopt(M_ARENA_MAX, 1);
}

}  // namespace trainyard
