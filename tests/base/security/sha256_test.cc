#include "base/security/sha256.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

// Vectors of FIPS 180-4's examples.
constexpr char kEmpty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kMillionA[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(Sha256, KnownVectors) {
  EXPECT_EQ(sha256Hex(""), kEmpty);
  EXPECT_EQ(sha256Hex("abc"), kAbc);
  EXPECT_EQ(sha256Hex(std::string(1'000'000, 'a')), kMillionA);
}

TEST(Sha256, PiecesEqualTheWholeAndDigestDoesNotEndIt) {
  Sha256 hash;
  EXPECT_EQ(hash.hexDigest(), kEmpty);
  hash.update("a");
  hash.update("");
  const std::string partial = hash.hexDigest();
  EXPECT_EQ(partial, sha256Hex("a"));
  hash.update("bc");
  EXPECT_EQ(hash.hexDigest(), kAbc);
  Sha256 moved = std::move(hash);
  EXPECT_EQ(moved.hexDigest(), kAbc);
}

TEST(Sha256, FileAndItsErrors) {
  std::string pattern = testing::TempDir() + "/sha256_XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path dir = pattern;
  std::ofstream(dir / "million") << std::string(1'000'000, 'a');
  std::ofstream(dir / "empty").flush();
  EXPECT_EQ(sha256File(dir / "million").value_or("?"), kMillionA);
  EXPECT_EQ(sha256File(dir / "empty").value_or("?"), kEmpty);
  const auto missing = sha256File(dir / "missing");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(std::string(missing.status().message()),
              testing::HasSubstr((dir / "missing").string()));
  const auto folder = sha256File(dir);
  ASSERT_FALSE(folder.ok());
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace trainyard
