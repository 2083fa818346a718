#include "base/process/open_files.h"

#include <sys/resource.h>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

TEST(OpenFiles, TheLowLimitOfAContainerIsRaisedToWhatIsAllowed) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GT(before.rlim_max, 64U);
  const rlimit low{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(openFilesLimit(), 64U);
  EXPECT_EQ(raiseOpenFilesLimit(), before.rlim_max);
  EXPECT_EQ(openFilesLimit(), before.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace trainyard
