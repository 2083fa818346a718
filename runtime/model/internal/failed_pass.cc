#include "runtime/model/internal/failed_pass.h"

#include <new>
#include <utility>

#include "fmt/format.h"

namespace trainyard::runtime {

Status failedPass(std::string_view what, int samples, const std::exception& failure) {
  const std::string_view why = failure.what();
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("{} of {} samples: out of memory", what, samples));
  }
  Status failed = absl::InternalError(fmt::format("{} of {} samples: {}", what, samples, why));
  // At the next start the GPU may be well again, or another one; what a model asks of its memory
  // ("CUDA out of memory") stays.
  const bool of_gpu = why.find("CUDA error: ") != std::string_view::npos;
  return of_gpu ? withClass(std::move(failed), FailureClass::kRetry) : failed;
}

}  // namespace trainyard::runtime
