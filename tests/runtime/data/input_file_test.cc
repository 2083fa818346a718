// Content of files, packed and not; zlib's reader is the oracle.
#include "runtime/data/internal/input_file.h"

#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/core/rng.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime::internal {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string packed(const std::string& content, int level) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<unsigned>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Of runs and noise, so that there are references, literals and stored blocks.
std::string someContent(Rng& rng, std::size_t bytes) {
  std::string content;
  while (content.size() < bytes) {
    if (rng.below(2) == 0) {
      content.append(1 + rng.below(300), static_cast<char>(rng.below(256)));
    } else {
      for (std::uint64_t i = rng.below(300); i > 0; --i)
        content.push_back(static_cast<char>(rng.below(256)));
    }
  }
  content.resize(bytes);
  return content;
}

class InputFileTest : public testing::Test {
 protected:
  std::string write(const std::string& content) const {
    const std::string path = (folder_.path() / "file").string();
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    return path;
  }

  // What the file holds; read in pieces of 1 to `piece_max` bytes.
  static StatusOr<std::string> readAll(const std::string& path, Rng& rng, std::size_t piece_max) {
    TY_ASSIGN_OR_RETURN(const auto file, InputFile::open("file", path, 1 << 30));
    std::string all;
    std::vector<std::uint8_t> piece(piece_max);
    for (;;) {
      const auto want = static_cast<std::size_t>(1 + rng.below(piece_max));
      TY_ASSIGN_OR_RETURN(const std::int64_t got, file->read(std::span(piece).first(want)));
      all.append(piece.begin(), piece.begin() + got);
      if (got < static_cast<std::int64_t>(want)) return all;
    }
  }

  // Nothing where the content is damaged.
  static std::optional<std::string> byZlib(const std::string& path) {
    const gzFile file = gzopen(path.c_str(), "rb");
    std::string all;
    char piece[4096];
    int got = 0;
    while ((got = gzread(file, piece, sizeof(piece))) > 0)
      all.append(piece, static_cast<std::size_t>(got));
    int error = Z_OK;
    gzerror(file, &error);
    gzclose_r(file);
    if (error != Z_OK && error != Z_STREAM_END) return std::nullopt;
    return all;
  }

  TempDir folder_;
};

TEST_F(InputFileTest, HandsOutWhatWasPacked) {
  Rng rng(1);
  for (const std::size_t bytes : {0, 1, 100, 70'000, 3'000'000}) {
    const std::string content = someContent(rng, bytes);
    EXPECT_EQ(readAll(write(content), rng, 1 << 20).value(), content) << bytes;
    for (const int level : {0, 1, 6, 9}) {
      const std::string path = write(packed(content, level));
      for (const std::size_t piece : {std::size_t{1000}, std::size_t{1} << 20})
        EXPECT_EQ(readAll(path, rng, piece).value(), content) << bytes << " at level " << level;
    }
  }
}

// Each byte by itself; members of all lengths, so that one ends at each place of a buffer.
TEST_F(InputFileTest, MembersFollowEachOther) {
  Rng rng(2);
  std::string content, file;
  while (file.size() < 3 << 18) {
    const std::string part = someContent(rng, rng.below(2000));
    content += part;
    file += packed(part, static_cast<int>(rng.below(10)));
  }
  const std::string path = write(file);
  EXPECT_EQ(readAll(path, rng, 1 << 16).value(), content);
  EXPECT_EQ(readAll(path, rng, 1).value(), content);
}

TEST_F(InputFileTest, WhatFollowsAndIsNoMemberIsPassedOver) {
  Rng rng(3);
  const std::string content = someContent(rng, 5000);
  for (const std::string& tail : {std::string("\x1f"), std::string(600'000, '\0')})
    EXPECT_EQ(readAll(write(packed(content, 6) + tail), rng, 1 << 16).value(), content);
}

TEST_F(InputFileTest, AFileThatOnlyBeginsLikeOneIsTakenAsItIs) {
  Rng rng(4);
  for (const std::string& content : {std::string("\x1f"), std::string("\x1f\x8c and more")})
    EXPECT_EQ(readAll(write(content), rng, 100).value(), content);
}

TEST_F(InputFileTest, DamageIsToldWhereverItIs) {
  Rng rng(5);
  const std::string content = someContent(rng, 3000);
  const std::string good = packed(content, 6);
  int refused = 0;
  for (std::size_t at = 2; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << rng.below(8)));
    const std::string path = write(bad);
    const auto read = readAll(path, rng, 1 << 16);
    const auto expected = byZlib(path);
    if (read.ok()) {  // bytes of the header that say nothing: time, system
      EXPECT_EQ(*read, content) << at;
      continue;
    }
    ++refused;
    EXPECT_FALSE(expected.has_value()) << at << ": " << read.status();
    EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
    EXPECT_THAT(std::string(read.status().message()), StartsWith("file: ")) << at;
  }
  EXPECT_GT(refused, static_cast<int>(good.size()) - 20);
  std::string wrong_sum = good;
  wrong_sum[good.size() - 5] ^= 1;
  EXPECT_THAT(readAll(write(wrong_sum), rng, 1000).status().ToString(),
              HasSubstr("damaged gzip stream: wrong checksum"));
}

TEST_F(InputFileTest, EachCutIsToldAsOne) {
  Rng rng(6);
  const std::string good = packed(someContent(rng, 3000), 6);
  for (std::size_t bytes = 2; bytes < good.size(); ++bytes) {
    const Status cut = readAll(write(good.substr(0, bytes)), rng, 1 << 16).status();
    EXPECT_THAT(cut.ToString(), HasSubstr("truncated: the gzip stream has no end")) << bytes;
  }
}

}  // namespace
}  // namespace trainyard::runtime::internal
