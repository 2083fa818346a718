// Frames out of bytes that come in pieces of any length.
#include "runtime/lanes/connection.h"

#include <sys/socket.h>

#include <condition_variable>
#include <mutex>

#include "base/process/unique_fd.h"
#include "gmock/gmock.h"
#include "tests/runtime/lanes/raw_lane.h"

namespace trainyard::runtime::lanes {
namespace {

using testing::Each;
using testing::HasSubstr;

const std::string kKey(32, 'k');

// Keeps the frames that arrive; one of number 13 is not wanted, in the middle of another's body.
class Keeper final : public Connection::Reader {
 public:
  struct Kept {
    std::uint64_t number;
    std::string header;
    std::vector<std::byte> first, second;
  };
  Status onHeader(const FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    if (head.body_bytes > 1 << 24) return absl::DataLossError("too long");
    const std::size_t half = head.body_bytes / 3;
    arriving_ = {head.number, std::string(header), std::vector<std::byte>(half),
                 std::vector<std::byte>(head.body_bytes - half)};
    body = {arriving_.first, arriving_.second};
    if (head.number == 13) connection->skipBody();
    return absl::OkStatus();
  }
  Status onFrame() override {
    std::lock_guard lock(mutex_);
    kept_.push_back(std::move(arriving_));
    changed_.notify_all();
    return absl::OkStatus();
  }
  void onClosed(const Status& why) override {
    std::lock_guard lock(mutex_);
    closed_ = why;
    changed_.notify_all();
  }
  std::vector<Kept> await(std::size_t frames) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [&] { return kept_.size() >= frames; }));
    return kept_;
  }
  Status awaitClosed() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [&] { return closed_.has_value(); }));
    return closed_.value_or(absl::OkStatus());
  }
  std::size_t kept() {
    std::lock_guard lock(mutex_);
    return kept_.size();
  }

  Connection* connection = nullptr;

 private:
  Kept arriving_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Kept> kept_;
  std::optional<Status> closed_;
};

class ConnectionTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    other_ = UniqueFd(ends[0]);
    auto loop = EventLoop::start(std::chrono::seconds(1), [] {});
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    connection_ = std::make_unique<Connection>(
        *loop_, stream::plainStream(UniqueFd(ends[1])),
        Connection::Seals{FrameSeal(kKey, 0), FrameSeal(kKey, 1)}, reader_);
    reader_.connection = connection_.get();
    loop_->post([this] { connection_->start(); });
  }
  void TearDown() override {
    loop_->post([this] { connection_.reset(); });
    loop_->stop();
  }
  std::string frame(std::uint64_t number, const std::string& header, const std::string& body) {
    const FrameHead head{FrameKind::kRequest, Topic::kChunk, number,
                         static_cast<std::uint32_t>(header.size()), body.size()};
    const FrameBytes bytes = encodeFrame(head, header, seal_);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + header + body;
  }

  UniqueFd other_;
  Keeper reader_;
  FrameSeal seal_{kKey, 0};
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Connection> connection_;
};

TEST_F(ConnectionTest, FramesArriveWholeHoweverTheyAreCut) {
  std::string bytes = frame(1, "one", "");
  bytes += frame(2, "two", std::string(7, 'b'));
  bytes += frame(3, "", std::string(100, 'c'));
  for (const char byte : bytes) sendAll(other_.get(), std::string(1, byte));
  const auto kept = reader_.await(3);
  EXPECT_EQ(kept[0].header, "one");
  EXPECT_TRUE(kept[0].second.empty());
  EXPECT_EQ(kept[1].number, 2u);
  EXPECT_EQ(kept[1].first.size(), 2u);
  EXPECT_THAT(kept[1].second, Each(std::byte{'b'}));
  EXPECT_EQ(kept[2].first.size() + kept[2].second.size(), 100u);
  EXPECT_THAT(kept[2].first, Each(std::byte{'c'}));
}

TEST_F(ConnectionTest, ManyFramesOfOneReadAndLongBodies) {
  std::string bytes;
  constexpr std::uint64_t kFrames = 400;
  for (std::uint64_t n = 0; n < kFrames; ++n) {
    const std::size_t length = n % 50 == 0 ? std::size_t{300'000} : n;
    bytes += frame(100 + n, std::string(n % 30, 'h'), std::string(length, static_cast<char>(n)));
  }
  sendAll(other_.get(), bytes);
  const auto kept = reader_.await(kFrames);
  for (std::uint64_t n = 0; n < kFrames; ++n) {
    ASSERT_EQ(kept[n].number, 100 + n);
    ASSERT_EQ(kept[n].header.size(), n % 30);
    ASSERT_EQ(kept[n].first.size() + kept[n].second.size(), n % 50 == 0 ? 300'000u : n);
    ASSERT_THAT(kept[n].second, Each(static_cast<std::byte>(n)));
  }
}

TEST_F(ConnectionTest, ABodyThatIsNotWantedGoesNowhere) {
  sendAll(other_.get(), frame(13, "unlucky", std::string(200'000, 'x')));
  sendAll(other_.get(), frame(14, "next", "abc"));
  const auto kept = reader_.await(1);
  EXPECT_EQ(kept[0].number, 14u);
}

TEST_F(ConnectionTest, ABodyThatIsCutOffIsNoFrame) {
  sendAll(other_.get(), frame(1, "one", ""));
  sendAll(other_.get(), frame(2, "two", std::string(1000, 'b')).substr(0, 600));
  reader_.await(1);
  other_.reset();
  EXPECT_TRUE(absl::IsUnavailable(reader_.awaitClosed()));
  EXPECT_EQ(reader_.kept(), 1u);
}

TEST_F(ConnectionTest, WhoTakesTheConnectionOverCannotSayAnythingOnIt) {
  sendAll(other_.get(), frame(1, "one", ""));
  reader_.await(1);
  FrameSeal guessed(std::string(32, 'g'), 0);
  const FrameBytes bytes =
      encodeFrame({FrameKind::kRequest, Topic::kChunk, 2, 3, 0}, "two", guessed);
  sendAll(other_.get(),
          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + "two");
  EXPECT_THAT(std::string(reader_.awaitClosed().message()), HasSubstr("not the other side's"));
  EXPECT_EQ(reader_.kept(), 1u);
}

TEST_F(ConnectionTest, WhatIsNoFrameEndsIt) {
  sendAll(other_.get(), std::string(100, 'z'));
  EXPECT_TRUE(absl::IsDataLoss(reader_.awaitClosed()));
}

// The other side reads when it likes; memory is let go as it leaves.
TEST_F(ConnectionTest, LongFramesWaitForTheirReader) {
  constexpr std::size_t kBytes = 3 << 20;
  const auto memory = std::make_shared<std::string>(kBytes, 'm');
  loop_->post([&] {
    for (std::uint64_t n = 1; n <= 3; ++n) {
      connection_->send(FrameKind::kReply, Topic::kChunk, n, "h",
                        {{std::as_bytes(std::span(*memory)).first(10), memory},
                         {std::as_bytes(std::span(*memory)).subspan(10), memory}});
    }
  });
  std::string got(3 * (kFrameBytes + 1 + kBytes), '\0');
  std::size_t at = 0;
  while (at < got.size()) {
    const ssize_t n = ::recv(other_.get(), got.data() + at, got.size() - at, 0);
    ASSERT_GT(n, 0);
    at += static_cast<std::size_t>(n);
  }
  EXPECT_EQ(got.substr(kFrameBytes, 1 + kBytes), "h" + *memory);
  EXPECT_EQ(got.substr(got.size() - kBytes), *memory);
  std::mutex mutex;
  std::condition_variable changed;
  long users = 0;
  loop_->post([&] {
    std::lock_guard lock(mutex);
    users = memory.use_count();
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, kLimit, [&] { return users > 0; }));
  EXPECT_EQ(users, 1);
}

}  // namespace
}  // namespace trainyard::runtime::lanes
