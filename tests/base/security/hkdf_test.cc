#include "base/security/hkdf.h"

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

// RFC 5869, appendix A.1.
TEST(Hkdf, IsThatOfTheStandard) {
  const std::string secret(22, '\x0b');
  std::string salt, info;
  for (int i = 0; i <= 0x0c; ++i) salt += static_cast<char>(i);
  for (int i = 0xf0; i <= 0xf9; ++i) info += static_cast<char>(i);
  EXPECT_EQ(absl::BytesToHexString(hkdfSha256(secret, salt, info, 42)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
}

// RFC 5869, appendix A.3: neither salt nor info.
TEST(Hkdf, TakesEmptySaltAndInfo) {
  EXPECT_EQ(absl::BytesToHexString(hkdfSha256(std::string(22, '\x0b'), {}, {}, 42)),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

TEST(Hkdf, OtherPurposesHaveOtherKeys) {
  EXPECT_NE(hkdfSha256("secret", "", "a", 32), hkdfSha256("secret", "", "b", 32));
  EXPECT_EQ(hkdfSha256("secret", "", "a", 32).size(), 32u);
}

}  // namespace
}  // namespace trainyard
