#include "base/core/crc32c.h"

#include <span>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

std::uint32_t of(std::string_view text, std::uint32_t before = 0) {
  return crc32c(std::as_bytes(std::span(text)), before);
}

// RFC 3720, appendix B.4, and the check value of the CRC catalogues.
TEST(Crc32c, GivesTheStandardsValues) {
  EXPECT_EQ(of(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(of(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(of("123456789"), 0xE3069283u);
}

// TensorBoard's event files begin with these bytes: 24, and its checksum.
TEST(Crc32c, IsMaskedAsTensorFlowsRecordsAre) {
  const std::string length("\x18\0\0\0\0\0\0\0", 8);
  EXPECT_EQ(maskedCrc32c(std::as_bytes(std::span(length))), 0x224B7FA3u);
}

TEST(Crc32c, GoesOnFromWhatCameBefore) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  for (std::size_t cut : {0, 1, 7, 8, 333, 1000})
    EXPECT_EQ(of(text.substr(cut), of(text.substr(0, cut))), of(text)) << cut;
}

}  // namespace
}  // namespace trainyard
