#include "runtime/lanes/lane_client.h"

#include <algorithm>
#include <utility>

namespace trainyard::runtime::lanes {
namespace {

constexpr Duration kFirstBackoff = std::chrono::milliseconds(20);
constexpr Duration kMaxBackoff = std::chrono::milliseconds(500);

}  // namespace

// One connection to the server, or the attempt at one, or why there is none.
class LaneClient::Lane final : public Connection::Reader {
 public:
  Lane(LaneClient& client, int index) : client_(client), index_(index) {}

  int index() const { return index_; }
  bool open() const { return connection_ != nullptr && !connection_->closed(); }
  bool calling() const { return greeting_ != nullptr && !greeting_->done(); }
  // Why nothing can be sent now.
  Status usable(TimePoint now) const {
    return open() || calling() || now >= not_before_ ? absl::OkStatus() : trouble_;
  }
  void call() {
    Intro intro = client_.intro_;
    intro.lane = static_cast<std::uint32_t>(index_);
    // A greeting that ends as it begins has not been returned yet.
    greeting_ = callServer(client_.loop_, client_.address_, client_.secrets_, intro,
                           [this, alive = client_.alive_](StatusOr<Greeted> result) {
                             auto shared = std::make_shared<StatusOr<Greeted>>(std::move(result));
                             client_.loop_.post([this, alive, shared] {
                               if (*alive) client_.ready(*this, std::move(*shared));
                             });
                           });
  }
  void send(Request request) {
    if (open()) {
      connection_->send(FrameKind::kRequest, request.topic, request.number,
                        std::move(request.header), std::move(request.body));
      return;
    }
    queued_.push_back(std::move(request));
    if (!calling() && greeting_ == nullptr) call();
  }
  void start(Greeted greeted) {
    greeting_.reset();
    backoff_ = kFirstBackoff;
    connection_ = std::make_unique<Connection>(client_.loop_, std::move(greeted.stream),
                                               std::move(greeted.seals), *this);
    connection_->start();
    for (Request& request : std::exchange(queued_, {})) send(std::move(request));
  }
  void fail(const Status& why) {
    greeting_.reset();
    queued_.clear();
    trouble_ = absl::UnavailableError(why.message());
    not_before_ = systemClock().now() + backoff_;
    backoff_ = std::min(backoff_ * 2, kMaxBackoff);
  }
  void drop(const Status& why) {
    if (open()) return connection_->close(why);
    fail(why);
    client_.reader_.onLost(index_, why);
  }
  std::optional<Pace> pace() const { return open() ? connection_->pace() : std::nullopt; }
  bool skipBody() { return open() && connection_->skipBody(); }
  void tick(TimePoint now) {
    if (calling()) greeting_->tick(now);
  }

  Status onHeader(const FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    return client_.reader_.onHeader(index_, head, header, body);
  }
  Status onFrame() override { return client_.reader_.onFrame(index_); }
  void onClosed(const Status& why) override {
    fail(why);
    client_.reader_.onLost(index_, why);
  }

 private:
  LaneClient& client_;
  const int index_;
  std::unique_ptr<Greeting> greeting_;
  std::unique_ptr<Connection> connection_;
  std::vector<Request> queued_;  // until there is a connection
  Duration backoff_ = kFirstBackoff;
  TimePoint not_before_{};
  Status trouble_;
};

LaneClient::LaneClient(EventLoop& loop, std::string address, LaneSecrets secrets, Intro intro,
                       Reader& reader)
    : loop_(loop),
      address_(std::move(address)),
      secrets_(std::move(secrets)),
      intro_(std::move(intro)),
      reader_(reader) {
  lanes_.push_back(std::make_unique<Lane>(*this, 0));
}

LaneClient::~LaneClient() {
  *alive_ = false;
}

std::optional<int> LaneClient::laneOf(std::uint64_t key) const {
  if (!count_) return std::nullopt;
  return static_cast<int>(key % *count_);
}

LaneClient::Lane& LaneClient::laneAt(std::uint64_t key) {
  return *lanes_[count_ ? key % *count_ : 0];
}

Status LaneClient::send(Request request) {
  Lane& lane = laneAt(request.key);
  TY_RETURN_IF_ERROR(lane.usable(systemClock().now()));
  if (count_) {
    lane.send(std::move(request));
    return absl::OkStatus();
  }
  waiting_.push_back(std::move(request));
  if (!lane.calling() && waiting_.size() == 1) lane.call();
  return absl::OkStatus();
}

void LaneClient::ready(Lane& lane, StatusOr<Greeted> greeted) {
  if (!greeted.ok()) {
    lane.fail(greeted.status());
    const bool first = !count_;
    waiting_.clear();
    return reader_.onLost(first ? std::nullopt : std::optional(lane.index()), greeted.status());
  }
  if (!count_) {
    count_ = std::max<std::size_t>(greeted->lanes, 1);
    for (int index = 1; index < static_cast<int>(*count_); ++index)
      lanes_.push_back(std::make_unique<Lane>(*this, index));
  }
  lane.start(*std::move(greeted));
  for (Request& request : std::exchange(waiting_, {})) laneAt(request.key).send(std::move(request));
}

std::optional<Pace> LaneClient::pace(int lane) const {
  return lanes_[static_cast<std::size_t>(lane)]->pace();
}

bool LaneClient::skipBody(int lane) {
  return lanes_[static_cast<std::size_t>(lane)]->skipBody();
}

void LaneClient::drop(std::optional<int> lane, const Status& why) {
  if (lane) return lanes_[static_cast<std::size_t>(*lane)]->drop(why);
  waiting_.clear();
  lanes_.front()->fail(why);
  reader_.onLost(std::nullopt, why);
}

void LaneClient::tick(TimePoint now) {
  for (const auto& lane : lanes_) lane->tick(now);
}

}  // namespace trainyard::runtime::lanes
