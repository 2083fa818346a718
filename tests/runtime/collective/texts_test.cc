// Texts from ranks that say wrong things about their length.
#include "runtime/collective/internal/texts.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/transport/transport.h"
#include "tests/runtime/collective/ranks.h"

namespace trainyard::runtime::collective {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr testing::Group kGroup{testing::Over::kInProcess, kRanks};

// Takes part in the exchange of lengths alone.
Status announce(Collective& collective, std::int64_t length) {
  std::vector<std::int64_t> lengths(kRanks);
  lengths[static_cast<std::size_t>(collective.rank())] = length;
  const std::vector<std::int64_t> one_each(kRanks, 1);
  return collective.allGather(
      {reinterpret_cast<std::byte*>(lengths.data()), kRanks, ElementType::kInt64}, one_each);
}

TEST(TextsTest, GoFromEveryRankToEveryRank) {
  const std::string longest(internal::kMaxTextBytes, 'x');
  const auto results = runRanks(kGroup, {}, [&](Collective& collective) -> Status {
    const std::string own = std::vector<std::string>{"", "five!", longest}.at(
        static_cast<std::size_t>(collective.rank()));
    TY_ASSIGN_OR_RETURN(const auto texts, internal::gatherTexts(collective, own));
    return texts == std::vector<std::string>{"", "five!", longest}
               ? absl::OkStatus()
               : absl::InternalError("other texts");
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST(TextsTest, LengthsThatCannotBeAreTheFaultOfTheirRank) {
  for (const std::int64_t length :
       {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(), internal::kMaxTextBytes + 1,
        std::int64_t{1} << 60, std::numeric_limits<std::int64_t>::max()}) {
    const auto results = runRanks(kGroup, {}, [&](Collective& collective) -> Status {
      if (collective.rank() == 1) return announce(collective, length);
      return internal::gatherTexts(collective, "a text").status();
    });
    EXPECT_TRUE(results[1].ok()) << results[1];
    for (const int r : {0, 2}) {
      const Status& result = results[static_cast<std::size_t>(r)];
      EXPECT_EQ(result.code(), absl::StatusCode::kDataLoss) << length;
      EXPECT_EQ(transport::blamedRank(result), 1) << result;
      EXPECT_THAT(std::string(result.message()), HasSubstr("rank 1 announces a text of "));
    }
  }
}

// All hear of it, the one itself too.
TEST(TextsTest, ATextThatIsTooLongIsSentToNobody) {
  const auto results = runRanks(kGroup, {}, [&](Collective& collective) -> Status {
    const std::size_t bytes = collective.rank() == 2 ? internal::kMaxTextBytes + 1 : 10;
    return internal::gatherTexts(collective, std::string(bytes, 'x')).status();
  });
  for (const Status& result : results) EXPECT_EQ(transport::blamedRank(result), 2) << result;
}

}  // namespace
}  // namespace trainyard::runtime::collective
