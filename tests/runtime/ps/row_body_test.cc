#include "runtime/ps/row_body.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/ps/row_grid.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::size_t> kDims = {2, 1};

rows::RowRequest request() {
  rows::RowRequest request;
  request.epoch = 3;
  request.rank = 1;
  request.step = 7;
  request.version = 8;
  request.ids = {{5, ~std::uint64_t{0}}, {}};
  request.gradients = {{rows::RowGradients{{1, 2, 9}, {1, 4, 1}, {1, 2, 3, 4, 5, 6}},
                        rows::RowGradients{{4}, {2}, {-0.5F}}}};
  return request;
}

v1::ChunkRequestHeader headerOf(const rows::RowRequest& request) {
  v1::ChunkRequestHeader header;
  header.set_epoch(request.epoch);
  header.set_rank(static_cast<std::uint32_t>(request.rank));
  header.set_step(request.step);
  header.set_pull_only(!request.gradients);
  header.set_version(request.version);
  header.set_samples(request.gradients ? 4 : 0);
  return header;
}

TEST(RowBody, ComesOutAsItWentIn) {
  for (const ElementType wire :
       {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}) {
    v1::ChunkRequestHeader header = headerOf(request());
    const RowBytes body = rowBody(request(), wire, header);
    const auto read = rowRequestOf(header, body.span(), kDims, wire);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->epoch, 3);
    EXPECT_EQ(read->rank, 1);
    EXPECT_EQ(read->step, 7);
    EXPECT_EQ(read->version, 8);
    EXPECT_EQ(read->ids, request().ids);
    ASSERT_TRUE(read->gradients);
    for (std::size_t t = 0; t < 2; ++t) {
      EXPECT_EQ((*read->gradients)[t].ids, (*request().gradients)[t].ids);
      EXPECT_EQ((*read->gradients)[t].counts, (*request().gradients)[t].counts);
      EXPECT_EQ((*read->gradients)[t].sums, (*request().gradients)[t].sums);
    }
  }
}

TEST(RowBody, OfWhoOnlyReads) {
  rows::RowRequest reads = request();
  reads.gradients.reset();
  v1::ChunkRequestHeader header = headerOf(reads);
  const RowBytes body = rowBody(reads, ElementType::kFloat32, header);
  EXPECT_EQ(body.size, 16U);
  const auto read = rowRequestOf(header, body.span(), kDims, ElementType::kFloat32);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->gradients);
  EXPECT_THAT(read->ids, ElementsAre(ElementsAre(5, ~std::uint64_t{0}), ElementsAre()));
}

// Numbers that only the header claims cost no memory.
TEST(RowBody, IsNeitherShorterNorLongerThanItsHeaderSays) {
  v1::ChunkRequestHeader header = headerOf(request());
  const RowBytes body = rowBody(request(), ElementType::kFloat32, header);
  for (std::size_t size = 0; size < body.size; ++size) {
    const auto cut = rowRequestOf(header, body.span().first(size), kDims, ElementType::kFloat32);
    ASSERT_TRUE(absl::IsInvalidArgument(cut.status())) << size;
    EXPECT_THAT(std::string(cut.status().message()), HasSubstr("shorter"));
  }
  std::vector<std::byte> more(body.span().begin(), body.span().end());
  more.push_back({});
  EXPECT_THAT(
      std::string(rowRequestOf(header, more, kDims, ElementType::kFloat32).status().message()),
      HasSubstr("longer"));
  header.mutable_tables(1)->set_wanted(0xFFFFFFFF);
  EXPECT_FALSE(rowRequestOf(header, body.span(), kDims, ElementType::kFloat32).ok());
  header.mutable_tables()->RemoveLast();
  EXPECT_THAT(
      std::string(
          rowRequestOf(header, body.span(), kDims, ElementType::kFloat32).status().message()),
      HasSubstr("1 tables, the job has 2"));
}

TEST(RowGrid, PartsAreNumbersBehindTheChunksAndNeighboursOnTheirServer) {
  for (const int servers : {1, 2, 3, 5, 16, 40}) {
    const RowGrid grid(7, servers);
    EXPECT_EQ(grid.parts(), RowGrid(9, 1).parts()) << "whatever the number of servers";
    EXPECT_TRUE(std::ranges::is_sorted(grid.psOfPart()));
    EXPECT_LT(grid.psOfPart().back(), servers);
    EXPECT_FALSE(grid.meaningOf(6));
    for (std::size_t p = 0; p < grid.parts().size(); ++p) {
      ASSERT_TRUE(grid.meaningOf(grid.numberOf(p)));
      EXPECT_EQ(grid.meaningOf(grid.numberOf(p))->part, p);
      EXPECT_FALSE(grid.meaningOf(grid.numberOf(p))->reads);
      EXPECT_EQ(grid.meaningOf(grid.readNumberOf(p))->part, p);
      EXPECT_TRUE(grid.meaningOf(grid.readNumberOf(p))->reads);
    }
    EXPECT_FALSE(grid.meaningOf(grid.readNumberOf(grid.parts().size())));
  }
  EXPECT_FALSE(RowGrid().meaningOf(0));
}

}  // namespace
}  // namespace trainyard::runtime::ps
