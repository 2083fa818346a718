#include "runtime/lanes/lane_server.h"

#include <algorithm>
#include <utility>

#include "base/core/log.h"
#include "base/core/strings.h"

namespace trainyard::runtime::lanes {
namespace {

constexpr Duration kTick = std::chrono::seconds(1);
// More at a time are somebody's who only wants to be in the way: the oldest goes.
constexpr std::size_t kMostGreetings = 1024;
// Between two lines about who is not taken.
constexpr Duration kTellPause = std::chrono::seconds(10);

}  // namespace

// A connection and who reads it.
struct LaneServer::Peer final : Connection::Reader {
  Status onHeader(const FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    return reader->onHeader(head, header, body);
  }
  Status onFrame() override { return reader->onFrame(); }
  void onClosed(const Status& why) override;

  Thread* thread = nullptr;
  std::unique_ptr<Connection> connection;
  std::unique_ptr<Connection::Reader> reader;  // before the connection, which it refers to
};

struct LaneServer::Thread {
  std::unique_ptr<EventLoop> loop;
  std::vector<std::unique_ptr<Peer>> peers;
};

void LaneServer::Peer::onClosed(const Status& why) {
  reader->onClosed(why);
  thread->loop->post([self = this, at = thread] {
    std::erase_if(at->peers, [&](const auto& peer) { return peer.get() == self; });
  });
}

LaneServer::LaneServer(Options options) : options_(std::move(options)) {}

EventLoop& LaneServer::loop(int lane) const {
  return *threads_[static_cast<std::size_t>(lane)]->loop;
}

StatusOr<std::unique_ptr<LaneServer>> LaneServer::start(Options options) {
  std::unique_ptr<LaneServer> server(new LaneServer(std::move(options)));
  for (int lane = 0; lane < server->options_.lanes; ++lane) {
    auto thread = std::make_unique<Thread>();
    const auto tick = [self = server.get(), lane] {
      if (lane == 0) self->tick();
    };
    TY_ASSIGN_OR_RETURN(thread->loop, EventLoop::start(kTick, tick));
    server->threads_.push_back(std::move(thread));
  }
  return server;
}

LaneServer::~LaneServer() {
  stop();
}

void LaneServer::stop() {
  for (std::size_t lane = 0; lane < threads_.size(); ++lane) {
    Thread& thread = *threads_[lane];
    thread.loop->post([this, lane, &thread] {
      if (lane == 0) greetings_.clear();
      for (const auto& peer : thread.peers)
        peer->connection->close(absl::CancelledError("the server ends"));
    });
    thread.loop->stop();
    thread.peers.clear();
  }
}

void LaneServer::take(UniqueFd socket) {
  // A task must be copyable.
  auto shared = std::make_shared<UniqueFd>(std::move(socket));
  loop(0).post([this, shared] { greet(std::move(*shared)); });
}

void LaneServer::greet(UniqueFd socket) {
  if (greetings_.size() >= kMostGreetings) greetings_.erase(greetings_.begin());
  greetings_.push_back(
      answerCaller(loop(0), std::move(socket), options_.secrets, threads_.size(), options_.judge,
                   [this](StatusOr<Greeted> result) { greeted(std::move(result)); }));
}

void LaneServer::greeted(StatusOr<Greeted> result) {
  loop(0).post(
      [this] { std::erase_if(greetings_, [](const auto& greeting) { return greeting->done(); }); });
  if (!result.ok()) {
    // Who ends at once says nothing worth a line: a port that is looked at.
    const TimePoint now = systemClock().now();
    if (absl::IsUnavailable(result.status()) || now < tell_not_before_) return;
    tell_not_before_ = now + kTellPause;
    TY_INFO("a connection is not taken: {}", fromAbsl(result.status().message()));
    return;
  }
  auto shared = std::make_shared<Greeted>(*std::move(result));
  loop(static_cast<int>(shared->intro.lane)).post([this, shared] { open(std::move(*shared)); });
}

void LaneServer::open(Greeted greeted) {
  Thread& thread = *threads_[greeted.intro.lane];
  auto peer = std::make_unique<Peer>();
  peer->thread = &thread;
  peer->connection = std::make_unique<Connection>(*thread.loop, std::move(greeted.stream),
                                                  std::move(greeted.seals), *peer);
  peer->reader = options_.open(*peer->connection, greeted.intro);
  Connection& connection = *peer->connection;
  thread.peers.push_back(std::move(peer));
  connection.start();
}

void LaneServer::tick() {
  const TimePoint now = systemClock().now();
  for (std::size_t i = 0; i < greetings_.size(); ++i) greetings_[i]->tick(now);
}

}  // namespace trainyard::runtime::lanes
