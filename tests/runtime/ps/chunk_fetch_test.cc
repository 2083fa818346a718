// Chunks fetched from a real server.
#include "runtime/ps/chunk_fetch.h"

#include <sys/socket.h>

#include <atomic>
#include <numeric>

#include "gmock/gmock.h"
#include "runtime/ps/chunk_body.h"
#include "runtime/ps/protocol.h"
#include "tests/base/process/recording_relay.h"
#include "tests/runtime/ps/rpc_bench.h"

namespace trainyard::runtime::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class ChunkFetchTest : public testing::Test {
 protected:
  explicit ChunkFetchTest(std::int64_t elements = 8, bool encrypted = false)
      : server_(1, 1, {}, elements, keys(), {}, encrypted) {
    options_.access = {secretsOf(keys(), encrypted), {v1::ROLE_PS, 1, incarnation(1, 1)}};
    options_.job_uid = kJob;
    options_.limits.pause = std::chrono::milliseconds(1);
    options_.over = [this] { return --looks_ < 0; };
    epoch_.set_epoch(2);
    v1::ChunkSource* source = epoch_.add_sources();
    source->set_ps(0);
    *source->mutable_incarnation() = incarnation(1, 1);
    source->set_address(server_.address);
  }
  Status fetch(const std::vector<std::uint32_t>& chunks, std::int64_t known = -1) {
    std::vector<FetchedChunk> from;
    for (const std::uint32_t chunk : chunks) from.push_back({chunk, 0, known});
    return fetchChunks(options_, server_.placement, epoch_, from, systemClock(),
                       {[&](std::uint32_t chunk, GivenChunk given) {
                          EXPECT_EQ(textOf(given), textOf(*server_.shard.give(2, chunk, known)));
                          fetched_.push_back(chunk);
                          return taken_;
                        },
                        {}});
  }
  void seal(std::int64_t epoch) {
    std::vector<ChunkAnswer> none;
    server_.shard.seal(epoch, none);
  }
  Status refused() {
    looks_ = 20;
    return fetch({1});
  }

  PsServer server_;
  FetchOptions options_;
  v1::EpochInfo epoch_;
  int looks_ = 100000;
  Status taken_;
  std::vector<std::uint32_t> fetched_;
};

TEST_F(ChunkFetchTest, HandsOverAllThatItAskedFor) {
  seal(2);
  const Status fetched = fetch({0, 1, 2, 3, 4});
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_THAT(fetched_, UnorderedElementsAre(0u, 1u, 2u, 3u, 4u));
  EXPECT_TRUE(fetch({}).ok());
}

TEST_F(ChunkFetchTest, WhatIsHereAlreadyIsNotSentAgain) {
  seal(2);
  EXPECT_EQ(server_.shard.give(2, 1, 0)->weights, nullptr);
  EXPECT_TRUE(fetch({1}, 0).ok());
  EXPECT_NE(server_.shard.give(2, 1, 7)->weights, nullptr);
  EXPECT_TRUE(fetch({1}, 7).ok()) << "of another version all comes";
  EXPECT_THAT(fetched_, ElementsAre(1u, 1u));
}

TEST_F(ChunkFetchTest, RepeatsUntilTheServerHasSealedTheEpoch) {
  int looks = 0;
  options_.over = [&] {
    if (++looks == 5) seal(2);
    return false;
  };
  const Status fetched = fetch({1});
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_GE(looks, 5);
}

TEST_F(ChunkFetchTest, EndsWithTheEpoch) {
  seal(3);
  looks_ = 5;
  EXPECT_TRUE(absl::IsCancelled(fetch({1})));
  EXPECT_EQ(looks_, -1);
}

TEST_F(ChunkFetchTest, NamesTheChunkAndItsServerWhenItIsTooLate) {
  seal(3);
  options_.limits.patience = std::chrono::milliseconds(200);
  const Status late = fetch({1});
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_THAT(late.ToString(),
              HasSubstr("ps-0: chunk 1: ps-0 gives no chunk for epoch 2, it is in 3"));
}

TEST_F(ChunkFetchTest, AnotherJobsServerIsNotAsked) {
  seal(2);
  options_.job_uid = "other";
  EXPECT_TRUE(absl::IsCancelled(refused()));
  options_.job_uid = kJob;
  epoch_.mutable_sources(0)->mutable_incarnation()->set_start(2);
  EXPECT_TRUE(absl::IsCancelled(refused()));
  epoch_.mutable_sources(0)->mutable_incarnation()->set_start(1);
  options_.access.secrets.key = deriveRuntimeKeys("another token").data;
  EXPECT_TRUE(absl::IsCancelled(refused()));
  EXPECT_THAT(fetched_, ElementsAre());
}

TEST_F(ChunkFetchTest, WhatCannotBeTakenOverEndsIt) {
  seal(2);
  taken_ = absl::InvalidArgumentError("does not fit");
  EXPECT_EQ(fetch({1, 3}), taken_);
  EXPECT_EQ(fetched_.size(), 1u);
  epoch_.clear_sources();
  EXPECT_THAT(fetch({1}).ToString(), HasSubstr("from ps-0, which epoch 2 does not name"));
}

TEST_F(ChunkFetchTest, AServerThatIsSilentIsCalledAgain) {
  const UniqueFd deaf(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(deaf.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(deaf.get(), 8), 0);
  ASSERT_EQ(::getsockname(deaf.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  epoch_.mutable_sources(0)->set_address(fmt::format("127.0.0.1:{}", ntohs(address.sin_port)));
  options_.limits.call_limit = std::chrono::milliseconds(1);
  options_.limits.patience = std::chrono::milliseconds(300);
  EXPECT_THAT(fetch({1}).ToString(), HasSubstr("ps-0: chunk 1: it does not answer"));
}

// Many times the bytes that a connection takes at once.
class LargeFetchTest : public ChunkFetchTest {
 protected:
  static constexpr std::int64_t kElements = 1 << 20;
  explicit LargeFetchTest(bool encrypted = false) : ChunkFetchTest(kElements, encrypted) {
    for (std::uint32_t chunk = 0; chunk < 5; ++chunk) push(chunk);
    seal(2);
  }
  // Every element of every chunk is another one at version 1, which version 0 comes along with.
  void push(std::uint32_t chunk) {
    v1::ChunkRequestHeader header;
    header.set_protocol(kChunkProtocol);
    header.set_job_uid(kJob);
    *header.mutable_server() = incarnation(1, 1);
    header.set_epoch(1);
    header.set_chunk(chunk);
    header.set_samples(1);
    std::vector<float> values(kElements);
    std::iota(values.begin(), values.end(), static_cast<float>(chunk) * 0.5f);
    std::vector<ChunkAnswer> answers;
    server_.shard.onRequest(header, std::make_unique<LoggedPayload>(std::move(values)), chunk + 1,
                            systemClock().now(), answers);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].header.version(), 1);
  }
};

class EitherFetchTest : public LargeFetchTest, public testing::WithParamInterface<bool> {
 protected:
  EitherFetchTest() : LargeFetchTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Encrypted, EitherFetchTest, testing::Bool());

TEST_P(EitherFetchTest, ArrivesAsItIs) {
  const Status fetched = fetch({0, 1, 2, 3, 4});
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_THAT(fetched_, UnorderedElementsAre(0u, 1u, 2u, 3u, 4u));
}

// Answers with a shard's chunks; each lane ends in the middle of its first one.
class CuttingReader final : public lanes::Connection::Reader {
 public:
  CuttingReader(lanes::Connection& connection, const Shard& shard, std::atomic<int>& cuts)
      : connection_(connection), shard_(shard), cuts_(cuts) {}
  Status onHeader(const lanes::FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>&) override {
    number_ = head.number;
    return request_.ParseFromArray(header.data(), static_cast<int>(header.size()))
               ? absl::OkStatus()
               : absl::DataLossError("no question");
  }
  Status onFrame() override {
    ChunkFrame frame = frameOf(*shard_.give(request_));
    connection_.send(lanes::FrameKind::kReply, lanes::Topic::kFetch, number_,
                     std::move(frame.header), std::move(frame.body));
    return cuts_-- > 0 ? absl::DataLossError("cut") : absl::OkStatus();
  }
  void onClosed(const Status&) override {}

 private:
  lanes::Connection& connection_;
  const Shard& shard_;
  std::atomic<int>& cuts_;
  std::uint64_t number_ = 0;
  v1::FetchChunkRequest request_;
};

TEST_F(LargeFetchTest, WhatIsCutOffInTheMiddleIsFetchedAgain) {
  std::atomic<int> cuts = 3;
  lanes::LaneServer::Options options;
  options.secrets = secretsOf(keys());
  options.judge = [](const lanes::Intro&) { return ""; };
  options.open = [&](lanes::Connection& connection, const lanes::Intro&) {
    return std::make_unique<CuttingReader>(connection, server_.shard, cuts);
  };
  auto server = lanes::LaneServer::start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  auto listener = TaskServer::start({.what = "ps-0", .identity = keys().control}, {&server_.tables},
                                    [&](UniqueFd socket) { (*server)->take(std::move(socket)); });
  ASSERT_TRUE(listener.ok()) << listener.status();
  epoch_.mutable_sources(0)->set_address(fmt::format("127.0.0.1:{}", (*listener)->port()));
  const Status fetched = fetch({0, 1, 2});
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_THAT(fetched_, UnorderedElementsAre(0u, 1u, 2u)) << "each once";
  EXPECT_LT(cuts, 0);
}

}  // namespace
}  // namespace trainyard::runtime::ps
