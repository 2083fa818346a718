#include "runtime/lanes/frame.h"

#include "gmock/gmock.h"

namespace trainyard::runtime::lanes {
namespace {

using testing::HasSubstr;

const std::string kSealKey(32, 'k');
constexpr FrameHead kHead{FrameKind::kReply, Topic::kSharedMemory, 77, 6, std::uint64_t{5} << 32};

TEST(Frame, SaysWhatItWasMadeOf) {
  FrameSeal out(kSealKey, 0);
  FrameSeal in(kSealKey, 0);
  const FrameBytes bytes = encodeFrame(kHead, "header", out);
  const auto head = decodeFrame(bytes);
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->kind, kHead.kind);
  EXPECT_EQ(head->topic, kHead.topic);
  EXPECT_EQ(head->number, kHead.number);
  EXPECT_EQ(head->header_bytes, kHead.header_bytes);
  EXPECT_EQ(head->body_bytes, kHead.body_bytes);
  EXPECT_TRUE(checkSeal(bytes, "header", in).ok());
}

TEST(Frame, NoBitOfItCanBeChanged) {
  FrameSeal out(kSealKey, 0);
  const FrameBytes good = encodeFrame(kHead, "header", out);
  for (std::size_t bit = 0; bit < 8 * kFrameBytes; ++bit) {
    FrameBytes bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    FrameSeal in(kSealKey, 0);
    EXPECT_FALSE(decodeFrame(bytes).ok() && checkSeal(bytes, "header", in).ok()) << bit;
  }
  FrameSeal in(kSealKey, 0);
  EXPECT_TRUE(absl::IsDataLoss(checkSeal(good, "headeR", in)));
}

// Somebody who says again what was said, leaves something out or sends it back.
TEST(Frame, IsGoodAtItsPlaceAlone) {
  FrameSeal out(kSealKey, 0);
  const FrameBytes first = encodeFrame(kHead, "header", out);
  const FrameBytes second = encodeFrame(kHead, "header", out);
  FrameSeal in(kSealKey, 0);
  EXPECT_FALSE(checkSeal(second, "header", in).ok()) << "before the first";
  FrameSeal again(kSealKey, 0);
  EXPECT_TRUE(checkSeal(first, "header", again).ok());
  EXPECT_FALSE(checkSeal(first, "header", again).ok()) << "a second time";
  FrameSeal other_side(kSealKey, 1);
  EXPECT_FALSE(checkSeal(first, "header", other_side).ok());
  FrameSeal other_connection(std::string(32, 'j'), 0);
  EXPECT_FALSE(checkSeal(first, "header", other_connection).ok());
}

TEST(Frame, AnotherVersionIsNamed) {
  FrameSeal out(kSealKey, 0);
  FrameBytes bytes = encodeFrame(kHead, "header", out);
  bytes[4] = std::byte{9};
  EXPECT_THAT(std::string(decodeFrame(bytes).status().message()),
              HasSubstr("a frame of version 9; this is 1"));
}

}  // namespace
}  // namespace trainyard::runtime::lanes
