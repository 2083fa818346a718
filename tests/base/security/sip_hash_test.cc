#include "base/security/sip_hash.h"

#include <string>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

std::string ascending(int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(i);
  return text;
}

// Appendix A of the paper: the key 00..0f, the message 00..0e.
TEST(SipHash, IsThatOfThePaper) {
  SipHash hash(ascending(16));
  EXPECT_EQ(hash.of({ascending(15)}), 0xa129ca6149be45e5U);
}

TEST(SipHash, PartsAreOneMessageAndEachHashStartsAnew) {
  SipHash hash(ascending(16));
  const std::string message = ascending(15);
  const std::string_view text(message);
  EXPECT_EQ(hash.of({text.substr(0, 4), text.substr(4, 0), text.substr(4)}), hash.of({text}));
  SipHash other(std::string(16, 'k'));
  EXPECT_NE(other.of({text}), hash.of({text}));
}

}  // namespace
}  // namespace trainyard
