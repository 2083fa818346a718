#include "operator/job/internal/yaml.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/operator/job/job_fixture.h"

namespace trainyard::control::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct BadText {
  const char* name;
  std::string text;
  int line;
  const char* message;
};

TEST(Yaml, RefusesWithALine) {
  const std::vector<BadText> rows = {
      {"empty", "", 0, "empty"},
      {"comment only", "# nothing\n", 0, "empty"},
      {"unclosed list", "a: [1, 2\nb: 3\n", 2, "not valid YAML"},
      {"documents without end", "{b},", 1, "not valid YAML"},
      {"and behind a text", "\"\",a", 1, "not valid YAML"},
      {"unclosed quote", "a: 1\nb: \"x\nc: 2\n", 2, "not valid YAML"},
      {"unclosed single quote", "a: 'x", 1, "not valid YAML"},
      {"bad indentation", "a:\n  b: 1\n c: 2\n", 3, "not valid YAML"},
      {"tab", "a:\n\tb: 1\n", 2, "not valid YAML"},
      {"unknown alias", "a: *x\n", 1, "not valid YAML"},
      {"duplicate key", "a: 1\nb: 2\na: 3\n", 3, "given twice, first on line 1"},
      {"nested duplicate", "a:\n  b: 1\n  b: 1\n", 3, "given twice, first on line 2"},
      {"merge key", "a: &x {b: 1}\nc:\n  <<: *x\n", 3, "merge keys"},
      {"two documents", "a: 1\n---\nb: 2\n", 3, "second document"},
      {"octal", "a: 012\n", 1, "octal"},
      {"infinity", "a: .inf\n", 1, "not a finite number"},
      {"not a number", "a: .NaN\n", 1, "not a finite number"},
      {"too large", "a: 1e999\n", 1, "out of range"},
      {"hexadecimal too large", "a: 0xffffffffffffffff\n", 1, "out of range"},
      {"mapping as key", "{a: 1}: 2\n", 1, "a key that is not plain text"},
      {"binary", "a: !!binary aGk=\n", 1, "tag"},
      {"local tag", "a: !mine 1\n", 1, "tag"},
      {"not UTF-8", "a: 1\nb: \xff\n", 2, "UTF-8"},
      {"overlong UTF-8", "a: \xc0\xaf\n", 1, "UTF-8"},
      {"surrogate", "a: \xed\xa0\x80\n", 1, "UTF-8"},
      {"cut-off UTF-8", "a: \xe2\x82", 1, "UTF-8"},
      {"NUL", std::string("a: \0b\n", 6), 1, "UTF-8"},
      {"too long", "a: " + std::string(1 << 20, 'x'), 0, "larger than 1048576 bytes"},
      {"too deep", std::string(100, '[') + std::string(100, ']'), 1, "nested too deeply"},
      {"too deep to be read", std::string(5000, '['), 1, "nested too deeply"},
  };
  for (const BadText& row : rows) {
    SCOPED_TRACE(row.name);
    internal::YamlDocument document;
    std::vector<JobProblem> problems;
    ASSERT_FALSE(internal::readYaml(row.text, "f.yaml", &document, &problems));
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_EQ(problems[0].line, row.line) << problems[0].text();
    EXPECT_THAT(problems[0].text(), HasSubstr(row.message));
    EXPECT_EQ(problems[0].file, "f.yaml");
  }
}

TEST(Yaml, AliasesCannotGrowWithoutBound) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string former = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + former;
    for (int k = 0; k < 8; ++k) text += ", " + former;
    text += "]\n";
  }
  internal::YamlDocument document;
  std::vector<JobProblem> problems;
  EXPECT_FALSE(internal::readYaml(text, "f.yaml", &document, &problems));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].message, HasSubstr("too many values"));
}

TEST(Yaml, ScalarsByTheCoreSchema) {
  EXPECT_EQ(yaml("[null, ~, Null, '', ]"), Json({nullptr, nullptr, nullptr, ""}));
  EXPECT_EQ(yaml("[true, False, TRUE]"), Json({true, false, true}));
  EXPECT_EQ(yaml("[1, -2, +3, 0, 0x1F, 0o17]"), Json({1, -2, 3, 0, 31, 15}));
  EXPECT_EQ(yaml("[0.5, .5, 5., 1e3, -1.5E-2, +2.5]"), Json({0.5, 0.5, 5.0, 1000.0, -0.015, 2.5}));
  EXPECT_EQ(yaml("[9223372036854775807, -9223372036854775808]"), Json({INT64_MAX, INT64_MIN}));
  EXPECT_TRUE(yaml("9223372036854775808").is_number_float());
}

TEST(Yaml, EverythingElseIsText) {
  EXPECT_EQ(
      yaml("[yes, no, on, 'yes', \"12\", '012', 1_000, 12:30, 2030-01-01, !!str 5, 0x, 1.2.3]"),
      Json({"yes", "no", "on", "yes", "12", "012", "1_000", "12:30", "2030-01-01", "5", "0x",
            "1.2.3"}));
  EXPECT_EQ(yaml("a: |\n  12\n"), Json({{"a", "12\n"}}));
}

TEST(Yaml, ReadsJson) {
  EXPECT_EQ(yaml("{\n  \"a\": [1, \"x\\u00e9\", {\"b\": null}],\n  \"c\": \"\\/\"\n}\n"),
            Json({{"a", {1, "xé", {{"b", nullptr}}}}, {"c", "/"}}));
  EXPECT_EQ(yaml("{\n\t\"a\": 1,\n\t\"b\": 2}"), Json({{"a", 1}, {"b", 2}}));
}

TEST(Yaml, DocumentMarksAndAnchorsAreFine) {
  EXPECT_EQ(yaml("# c\n---\na: &x [1]\nb: *x\n---\n"), Json({{"a", {1}}, {"b", {1}}}));
}

TEST(Yaml, KnowsTheLineOfEveryValue) {
  internal::YamlDocument document;
  std::vector<JobProblem> problems;
  ASSERT_TRUE(
      internal::readYaml("a:\n  b:\n    - 1\n    - c: 2\n  d.e: 3\n", "f", &document, &problems));
  const auto line = [&](const char* path) { return document.locations.at(path).line; };
  EXPECT_THAT((std::vector<int>{line("a"), line("a.b"), line("a.b[0]"), line("a.b[1].c"),
                                line("a[\"d.e\"]")}),
              ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(line("a.b[1].missing"), 4);
  EXPECT_EQ(line("a.bb"), 1);
}

}  // namespace
}  // namespace trainyard::control::testing
