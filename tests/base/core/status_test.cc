#include "base/core/status.h"

#include <cerrno>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

// FAILED_PRECONDITION would be taken for a diverged model, or a conflict of two writers.
TEST(ErrnoStatus, WrongFilesAreInvalidInput) {
  for (const int error : {ENOTDIR, EISDIR, ENOTEMPTY}) {
    const Status status = errnoStatus(error, "open x");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << error;
    EXPECT_EQ(failureClass(status), FailureClass::kPermanent);
  }
  for (int error = 1; error < 134; ++error) {
    EXPECT_NE(errnoStatus(error, "x").code(), absl::StatusCode::kFailedPrecondition) << error;
  }
  EXPECT_EQ(errnoStatus(EROFS, "open x").message(), "open x: Read-only file system");
  EXPECT_EQ(failureClass(errnoStatus(EROFS, "open x")), FailureClass::kPermanent);
  EXPECT_EQ(errnoStatus(ENOENT, "open x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(failureClass(errnoStatus(ENOSPC, "write x")), FailureClass::kRetry);
}

}  // namespace
}  // namespace trainyard
