// Both ends of lanes between real sockets, with many lanes, encrypted, and broken in between.
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "gmock/gmock.h"
#include "runtime/lanes/lane_client.h"
#include "tests/runtime/lanes/lane_bench.h"

namespace trainyard::runtime::lanes {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// A client on a loop of its own; asked from the test's thread.
class Asker final : public LaneClient::Reader {
 public:
  explicit Asker(const LaneBench& bench, std::shared_ptr<const stream::Encryption> tls = nullptr) {
    auto loop = EventLoop::start(std::chrono::milliseconds(100),
                                 [this] { client_->tick(systemClock().now()); });
    EXPECT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    client_ =
        std::make_unique<LaneClient>(*loop_, bench.address(), LaneSecrets{kSecret, std::move(tls)},
                                     Intro{workerEnd(), serverEnd(), 0}, *this);
  }
  ~Asker() override {
    loop_->post([this] { client_.reset(); });
    loop_->stop();
  }
  void ask(std::uint64_t key, const std::string& header, std::size_t body = 0) {
    loop_->post([this, key, header, body] {
      auto memory = std::make_shared<std::vector<std::byte>>(body, std::byte{7});
      const Status sent = client_->send({key, Topic::kChunk, key, header, {{*memory, memory}}});
      if (!sent.ok()) lose(sent);
    });
  }
  std::string answer(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [&] { return answers_.count(number) > 0; }))
        << number;
    return answers_[number];
  }
  // Asks until there is an answer: a lane that was lost is not called again at once.
  std::string insist(std::uint64_t number) {
    const TimePoint limit = systemClock().now() + kLimit;
    while (systemClock().now() < limit) {
      ask(number, "k");
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLimit,
                        [&] { return lost_.has_value() || answers_.count(number) > 0; });
      lost_.reset();
      if (answers_.count(number) > 0) return answers_[number];
    }
    return "";
  }
  Status awaitLoss() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [&] { return lost_.has_value(); }));
    const Status why = lost_.value_or(absl::OkStatus());
    lost_.reset();
    return why;
  }

  Status onHeader(int lane, const FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    Arriving& one = arriving_[lane];
    one = {head.number, std::string(header), std::vector<std::byte>(head.body_bytes)};
    body = {one.body};
    return absl::OkStatus();
  }
  Status onFrame(int lane) override {
    std::lock_guard lock(mutex_);
    const Arriving& one = arriving_[lane];
    EXPECT_EQ(std::count(one.body.begin(), one.body.end(), std::byte{7}),
              static_cast<std::ptrdiff_t>(one.body.size()));
    answers_[one.number] = one.header + "/" + std::to_string(one.body.size());
    changed_.notify_all();
    return absl::OkStatus();
  }
  void onLost(std::optional<int>, const Status& why) override { lose(why); }

 private:
  struct Arriving {
    std::uint64_t number = 0;
    std::string header;
    std::vector<std::byte> body;
  };
  void lose(const Status& why) {
    std::lock_guard lock(mutex_);
    lost_ = why;
    changed_.notify_all();
  }
  std::map<int, Arriving> arriving_;  // the loop's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::string> answers_;
  std::optional<Status> lost_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<LaneClient> client_;
};

TEST(Lanes, EachKeyHasItsLane) {
  LaneBench bench(3);
  Asker asker(bench);
  for (std::uint64_t key = 0; key < 30; ++key) asker.ask(key, "k", 1000 * key);
  for (std::uint64_t key = 0; key < 30; ++key) {
    EXPECT_EQ(asker.answer(key), "k@" + std::to_string(key % 3) + "/" + std::to_string(1000 * key));
  }
}

TEST(Lanes, LargeBodiesPassBothWaysAtOnce) {
  LaneBench bench(2);
  Asker asker(bench);
  constexpr std::size_t kBytes = 3 << 20;
  for (std::uint64_t key = 0; key < 12; ++key) asker.ask(key, "k", kBytes);
  for (std::uint64_t key = 0; key < 12; ++key)
    EXPECT_THAT(asker.answer(key), EndsWith("/" + std::to_string(kBytes)));
}

TEST(Lanes, EncryptedTheyCarryTheSame) {
  const auto tls = *stream::TlsContext::make(LaneBench::keys().control);
  LaneBench bench(2, tls);
  Asker asker(bench, tls);
  for (std::uint64_t key = 0; key < 8; ++key) asker.ask(key, "k", 300'000 * key);
  for (std::uint64_t key = 0; key < 8; ++key)
    EXPECT_THAT(asker.answer(key), EndsWith("/" + std::to_string(300'000 * key)));
}

TEST(Lanes, ACertificateOfAnotherJobIsNotTaken) {
  LaneBench bench(1, *stream::TlsContext::make(LaneBench::keys().control));
  Asker asker(bench, *stream::TlsContext::make(deriveRuntimeKeys("another token").control));
  asker.ask(1, "k");
  EXPECT_TRUE(absl::IsUnavailable(asker.awaitLoss()));
}

TEST(Lanes, OneFailsAloneAndIsOpenedAnew) {
  LaneBench bench(2);
  Asker asker(bench);
  for (const std::uint64_t key : {0, 1}) {
    asker.ask(key, "k");
    asker.answer(key);
  }
  asker.ask(3, "end the lane");
  EXPECT_TRUE(absl::IsUnavailable(asker.awaitLoss()));
  asker.ask(4, "k");
  EXPECT_EQ(asker.answer(4), "k@0/0");
  EXPECT_EQ(asker.insist(5), "k@1/0");
}

TEST(Lanes, AServerThatIsNotThereIsNamedAndFoundWhenItComes) {
  std::uint16_t port = 0;
  {
    LaneBench bench(1);
    port = static_cast<std::uint16_t>(bench.port());
    Asker asker(bench);
    asker.ask(1, "k");
    asker.answer(1);
  }
  auto bench = std::make_unique<LaneBench>(1, nullptr, port);
  Asker asker(*bench);
  bench.reset();
  asker.ask(1, "k");
  EXPECT_THAT(std::string(asker.awaitLoss().message()), HasSubstr("127.0.0.1"));
  LaneBench again(1, nullptr, port);
  EXPECT_EQ(asker.insist(2), "k@0/0");
}

TEST(Lanes, AServerCanEndWithBodiesUnderWay) {
  auto bench = std::make_unique<LaneBench>(2);
  Asker asker(*bench);
  for (std::uint64_t key = 0; key < 20; ++key) asker.ask(key, "k", 1 << 20);
  asker.answer(0);
  bench.reset();
  EXPECT_FALSE(asker.awaitLoss().ok());
}

}  // namespace
}  // namespace trainyard::runtime::lanes
