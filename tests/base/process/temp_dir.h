// Helpers of tests that deal with files and processes.
#pragma once

#include <filesystem>
#include <functional>
#include <source_location>
#include <string>
#include <utility>

#include "base/core/clock.h"
#include "base/process/poll.h"
#include "fmt/format.h"
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

// Whether what was waited for has come. Where it has not, an assertion about this says "timed out
// after", by which the runner of the tests knows it (tests/runner/results.py).
class Waited {
 public:
  static Waited success() { return Waited(""); }
  static Waited timedOut(Duration limit, const std::string& what) {
    return Waited(fmt::format("timed out after {:g} s waiting for {}", toSeconds(limit), what));
  }
  operator bool() const { return trouble_.empty(); }
  operator testing::AssertionResult() const {
    return trouble_.empty() ? testing::AssertionSuccess() : testing::AssertionFailure() << trouble_;
  }
  const std::string& trouble() const { return trouble_; }

 private:
  explicit Waited(std::string trouble) : trouble_(std::move(trouble)) {}
  std::string trouble_;
};

// Looks every few milliseconds until `condition` holds; false when it does not within `limit`, a
// bound against hangs only.
inline Waited eventually(const std::function<bool()>& condition,
                         Duration limit = std::chrono::seconds(30),
                         std::source_location where = std::source_location::current()) {
  const TimePoint end = systemClock().now() + limit;
  for (;;) {
    if (condition()) return Waited::success();
    if (systemClock().now() >= end) {
      const auto file = std::filesystem::path(where.file_name()).filename().native();
      return Waited::timedOut(limit, fmt::format("{}:{}", file, where.line()));
    }
    pollUntil({}, systemClock().now() + std::chrono::milliseconds(5));
  }
}

}  // namespace trainyard
