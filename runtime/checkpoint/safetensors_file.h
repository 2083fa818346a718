// The header of a safetensors file.
#pragma once

#include "base/core/status.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {

// DATA_LOSS names the file and what is wrong.
StatusOr<SafetensorsHeader> readSafetensorsHeader(const ReadableFile& file);

}  // namespace trainyard::runtime
