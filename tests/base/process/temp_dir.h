// Helpers of tests that deal with files and processes.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/core/clock.h"
#include "base/process/poll.h"
#include "gtest/gtest.h"

namespace trainyard {

// A folder of its own for one test, removed with all that is in it.
class TempDir {
 public:
  TempDir() {
    std::string name = testing::TempDir() + "trainyard-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << name;
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Looks every few milliseconds until `condition` holds; false when it does not within `limit`, a
// bound against hangs only.
inline bool eventually(const std::function<bool()>& condition,
                       Duration limit = std::chrono::seconds(20)) {
  const TimePoint end = systemClock().now() + limit;
  for (;;) {
    if (condition()) return true;
    if (systemClock().now() >= end) return false;
    pollUntil({}, systemClock().now() + std::chrono::milliseconds(5));
  }
}

}  // namespace trainyard
