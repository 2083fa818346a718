// The main of a program with the tests of a folder (cmake/test_groups.cmake). Started under the
// name of one of them it runs that one's suites, but for what a filter leaves out or where a filter
// names cases; under its own name all of them.
//
// With TRAINYARD_CASES_AT_ONCE=N (ty_test's AT_ONCE) and no cases named, N of its processes run a
// share of them each.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

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

constexpr char kAtOnce[] = "TRAINYARD_CASES_AT_ONCE";

// Each share in a process of its own, the n-th with results in "NAME_n.xml"; its exit code is that
// of one which failed.
int runInShares(int shares, char** argv) {
  std::string xml = GTEST_FLAG_GET(output);
  if (xml.ends_with('/')) xml += std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1);
  ::unsetenv(kAtOnce);
  ::setenv("GTEST_TOTAL_SHARDS", std::to_string(shares).c_str(), 1);
  std::vector<pid_t> children;
  for (int n = 0; n < shares; ++n) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setenv("GTEST_SHARD_INDEX", std::to_string(n).c_str(), 1);
      if (!xml.empty()) {
        ::setenv("GTEST_OUTPUT", (xml + "_" + std::to_string(n + 1) + ".xml").c_str(), 1);
      }
      ::execv("/proc/self/exe", argv);
      std::perror("execv");
      ::_exit(1);
    }
    if (child < 0) std::perror("fork");
    children.push_back(child);
  }
  int code = 0;
  for (const pid_t child : children) {
    int status = 1;
    if (child > 0) (void)::waitpid(child, &status, 0);
    if (!WIFEXITED(status)) std::fprintf(stderr, "%s: a share of its cases was killed\n", argv[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) code = 1;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> given_arguments(argv, argv + argc + 1);
  testing::InitGoogleMock(&argc, argv);
  const std::string given = GTEST_FLAG_GET(filter);
  if (given == "*") GTEST_FLAG_SET(filter, filterOf(argv[0]));
  if (given.starts_with('-')) GTEST_FLAG_SET(filter, filterOf(argv[0]) + given);
  if (const std::string suite = suiteWithoutTest(); !suite.empty()) {
    std::fprintf(stderr, "%s: no test has the suite %s\n", argv[0], suite.c_str());
    return 1;
  }
  const char* at_once = std::getenv(kAtOnce);
  const int shares = at_once == nullptr ? 1 : std::atoi(at_once);
  if (shares > 1 && (given == "*" || given.starts_with('-')) && !GTEST_FLAG_GET(list_tests)) {
    return runInShares(shares, given_arguments.data());
  }
  // Whole lines, also where several processes write them.
  if (std::getenv("GTEST_TOTAL_SHARDS") != nullptr) std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  return RUN_ALL_TESTS();
}
