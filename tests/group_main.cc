// The main of a program with the tests of a folder (cmake/test_groups.cmake). Started under the
// name of one of them it runs that one's suites, but for what a filter leaves out or where a filter
// names cases; under its own name all of them.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>

#include "gmock/gmock.h"

namespace {

// Which suites a test has.
struct Row {
  const char* test;
  const char* suite;
};
constexpr Row kRows[] = {
#include TRAINYARD_GROUP
};

// Plain suites, and those with parameters, whose names have what instantiates them in front.
std::string filterOf(const char* program) {
  const char* slash = std::strrchr(program, '/');
  const std::string name = slash == nullptr ? program : slash + 1;
  std::string filter;
  for (const Row& row : kRows) {
    if (name != row.test) continue;
    filter += std::string(filter.empty() ? "" : ":") + row.suite + ".*:*/" + row.suite + ".*";
  }
  return filter.empty() ? "*" : filter;
}

// "Prefix/Suite/0" -> "Suite", and a plain name as it is.
std::string plainName(const std::string& name) {
  const std::size_t begin = name.find('/') == std::string::npos ? 0 : name.find('/') + 1;
  return name.substr(begin, name.find('/', begin) - begin);
}

// A suite that belongs to no test would never run; one whose lines the configuration did not
// understand. Returns its name, or nothing.
std::string suiteWithoutTest() {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const std::string suite = plainName(all.GetTestSuite(i)->name());
    const bool known = std::any_of(std::begin(kRows), std::end(kRows),
                                   [&](const Row& row) { return suite == row.suite; });
    if (!known) return suite;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const std::string given = GTEST_FLAG_GET(filter);
  if (given == "*") GTEST_FLAG_SET(filter, filterOf(argv[0]));
  if (given.starts_with('-')) GTEST_FLAG_SET(filter, filterOf(argv[0]) + given);
  if (const std::string suite = suiteWithoutTest(); !suite.empty()) {
    std::fprintf(stderr, "%s: no test has the suite %s\n", argv[0], suite.c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
