// What a program has declared, as a file: whole, or refused by what is wrong with it.
#include "runtime/program/declared_model.h"

#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "base/process/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

using session::Declaration;
using session::SessionMemory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Declaration kDeclared{
    .samples = 100,
    .eval_samples = 10,
    .variables = {{"z.weight", {2, 3}}, {"count", {}, ElementType::kInt64, false}, {"a.bias", {}}},
    .own_update = true,
    .has_state = true};

SessionMemory filled() {
  SessionMemory memory = *SessionMemory::create(kDeclared);
  float next = 1;
  for (const std::size_t variable : {0, 2}) {
    const auto value = memory.value(variable);
    auto* const floats = reinterpret_cast<float*>(value.data());
    std::generate_n(floats, value.size() / sizeof(float), [&] { return next++; });
  }
  return memory;
}

class DeclaredModelTest : public testing::Test {
 protected:
  std::string path() const { return declaredModelPath(dir_.path().string()); }

  TempDir dir_;
};

TEST_F(DeclaredModelTest, ComesBackAsItWasWritten) {
  ASSERT_TRUE(writeDeclaredModel(path(), kDeclared, filled()).ok());
  const auto read = readDeclaredModel(path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->declaration, kDeclared);
  // What is not trained is no concern of servers.
  std::vector<std::string> names;
  for (const Variable& variable : read->layout.variables) names.push_back(variable.name);
  EXPECT_THAT(names, ElementsAre("global_step", "z.weight", "a.bias"));
  EXPECT_THAT(read->layout.variables[1].shape, ElementsAre(2, 3));
  EXPECT_THAT(read->layout.values,
              ElementsAre(std::vector<float>{}, ElementsAre(1, 2, 3, 4, 5, 6), ElementsAre(7)));
}

TEST_F(DeclaredModelTest, IsWaitedFor) {
  EXPECT_TRUE(absl::IsNotFound(readDeclaredModel(path()).status()));
  EXPECT_TRUE(absl::IsCancelled(awaitDeclaredModel(path(), [] { return true; }).status()));
  std::thread writer([&] { EXPECT_TRUE(writeDeclaredModel(path(), kDeclared, filled()).ok()); });
  const auto read = awaitDeclaredModel(path(), {});
  writer.join();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->declaration, kDeclared);
}

TEST_F(DeclaredModelTest, OfADamagedFileTheTroubleIsTold) {
  ASSERT_TRUE(writeDeclaredModel(path(), kDeclared, filled()).ok());
  const std::string whole = *readFile(path(), 1 << 20);
  const auto readAs = [&](const std::string& bytes) {
    EXPECT_TRUE(writeFileAtomically(path(), bytes).ok());
    const Status status = readDeclaredModel(path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  };
  // At no length does it pass for whole.
  for (std::size_t length = 0; length < whole.size(); length += 7)
    EXPECT_THAT(readAs(whole.substr(0, length)), HasSubstr(path()));
  std::string other = whole;
  other.replace(other.find("float32"), 7, "float33");
  EXPECT_THAT(readAs(other), HasSubstr("z.weight: unknown type"));
  other = whole;
  other.replace(other.find("trainyard.declaration"), 21, "trainyard.declarations").pop_back();
  EXPECT_THAT(readAs(other), HasSubstr(path()));
}

// A pipe in its place would be waited for.
TEST_F(DeclaredModelTest, WhatIsNoFileIsNotRead) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(std::string(readDeclaredModel(path()).status().message()),
              HasSubstr("is not a regular file"));
}

TEST(CheckDeclared, RefusesWhatNoJobCanTrain) {
  Declaration twice = kDeclared;
  twice.variables.push_back(twice.variables[0]);
  EXPECT_THAT(std::string(checkDeclared(twice).message()), HasSubstr("z.weight: declared twice"));
  Declaration counter = kDeclared;
  counter.variables[0].name = "global_step";
  EXPECT_THAT(std::string(checkDeclared(counter).message()), HasSubstr("the job's own counter"));
  Declaration frozen = kDeclared;
  for (session::DeclaredVariable& variable : frozen.variables) variable.trainable = false;
  EXPECT_THAT(std::string(checkDeclared(frozen).message()), HasSubstr("no variable is trained"));
  EXPECT_TRUE(checkDeclared(kDeclared).ok());
}

}  // namespace
}  // namespace trainyard::runtime
