#include "runtime/transport/in_process.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>

#include "base/core/check.h"

namespace trainyard::runtime::transport {
namespace {

struct Message {
  MessageId id;
  std::vector<std::byte> bytes;
};

class Group : public InProcessGroup, public std::enable_shared_from_this<Group> {
 public:
  explicit Group(int size)
      : size_(size),
        queues_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size)),
        left_(static_cast<std::size_t>(size)),
        waiting_(static_cast<std::size_t>(size)) {}

  std::unique_ptr<Transport> join(int rank) override;

  std::deque<Message>& queue(int from, int to) {
    return queues_[static_cast<std::size_t>(from * size_ + to)];
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // All below under mutex_.
  std::vector<std::deque<Message>> queues_;
  std::vector<bool> left_;
  std::vector<std::optional<int>> waiting_;
  Status failure_;
  int failed_by_ = -1;
};

class Member : public Transport {
 public:
  Member(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)),
        rank_(rank),
        receives_(static_cast<std::size_t>(group_->size_)),
        sent_(static_cast<std::size_t>(group_->size_)),
        posted_(static_cast<std::size_t>(group_->size_)),
        landed_(static_cast<std::size_t>(group_->size_)) {}

  ~Member() override {
    std::lock_guard lock(group_->mutex_);
    group_->left_[static_cast<std::size_t>(rank_)] = true;
    group_->changed_.notify_all();
  }

  int rank() const override { return rank_; }
  int size() const override { return group_->size_; }
  const Counters& counters() const override { return counters_; }

  std::uint64_t send(int peer, const MessageId& id, std::span<const std::byte> bytes) override {
    TY_CHECK(peer >= 0 && peer < size() && peer != rank_, "messages go to other ranks");
    std::lock_guard lock(group_->mutex_);
    group_->queue(rank_, peer).push_back({id, {bytes.begin(), bytes.end()}});
    group_->changed_.notify_all();
    ++counters_.messages_sent;
    counters_.bytes_sent += bytes.size();
    return ++sent_[static_cast<std::size_t>(peer)];
  }

  std::uint64_t receive(int peer, const MessageId& id, const Landing& landing) override {
    TY_CHECK(peer >= 0 && peer < size() && peer != rank_, "messages come from other ranks");
    receives_[static_cast<std::size_t>(peer)].push_back({id, landing});
    return ++posted_[static_cast<std::size_t>(peer)];
  }

  // A message has left as soon as it is copied.
  Status waitSent(int peer, std::uint64_t count, const Wait&) override {
    TY_CHECK(count <= sent_[static_cast<std::size_t>(peer)], "waits for what was posted");
    return check();
  }

  Status waitReceived(int peer, std::uint64_t count, const Wait& wait) override {
    TY_CHECK(count <= posted_[static_cast<std::size_t>(peer)], "waits for what was posted");
    const TimePoint start = systemClock().now();
    while (landed_[static_cast<std::size_t>(peer)] < count) {
      Message message;
      TY_RETURN_IF_ERROR(next(peer, wait, start, message));
      TY_RETURN_IF_ERROR(land(peer, wait, message));
    }
    counters_.waited += systemClock().now() - start;
    return absl::OkStatus();
  }

  Status check() override {
    std::lock_guard lock(group_->mutex_);
    return failure();
  }

  Status watch(OutsideWait& outside) override {
    std::lock_guard lock(group_->mutex_);
    group_->waiting_[static_cast<std::size_t>(rank_)] = outside.peer;
    const TimePoint now = systemClock().now();
    if (now >= outside.wait.deadline) {
      fail(silentRank(blame(rank_, outside.peer, group_->waiting_), outside.wait,
                      now - outside.start));
    }
    return failure();
  }

  void endWatch(const OutsideWait&) override {
    std::lock_guard lock(group_->mutex_);
    group_->waiting_[static_cast<std::size_t>(rank_)].reset();
  }

  bool hasLeft(int peer) const override {
    std::lock_guard lock(group_->mutex_);
    return group_->left_[static_cast<std::size_t>(peer)];
  }

  void abort(const Status& status) override {
    std::lock_guard lock(group_->mutex_);
    fail(status);
  }

 private:
  struct Receive {
    MessageId id;
    Landing landing;
  };

  // The next message of `peer`; fails the group when it does not come.
  Status next(int peer, const Wait& wait, TimePoint start, Message& message) {
    std::unique_lock lock(group_->mutex_);
    auto& queue = group_->queue(peer, rank_);
    group_->waiting_[static_cast<std::size_t>(rank_)] = peer;
    const auto moved = [&] {
      return !queue.empty() || !group_->failure_.ok() ||
             group_->left_[static_cast<std::size_t>(peer)];
    };
    const bool in_time = group_->changed_.wait_until(lock, wait.deadline, moved);
    if (!group_->failure_.ok()) return failure();
    if (!in_time) {
      const TimePoint now = systemClock().now();
      fail(silentRank(blame(rank_, peer, group_->waiting_), wait, now - start));
      return failure();
    }
    group_->waiting_[static_cast<std::size_t>(rank_)].reset();
    if (queue.empty()) {
      fail(lostRank(peer, wait, "it left the group"));
      return failure();
    }
    message = std::move(queue.front());
    queue.pop_front();
    return absl::OkStatus();
  }

  Status land(int peer, const Wait& wait, const Message& message) {
    auto& queue = receives_[static_cast<std::size_t>(peer)];
    const Receive expected = queue.front();
    const Landing& landing = expected.landing;
    if (message.id != expected.id || message.bytes.size() != landing.bytes) {
      const Status wrong = unexpectedMessage(peer, wait, expected.id, landing.bytes, message.id,
                                             message.bytes.size());
      abort(wrong);
      return wrong;
    }
    if (landing.combine) {
      const std::size_t n = landing.bytes / sizeOf(landing.combine->type);
      reduceInto(landing.combine->type, landing.combine->op, landing.into, message.bytes.data(),
                 static_cast<std::int64_t>(n));
    } else if (landing.bytes > 0) {
      std::memcpy(landing.into, message.bytes.data(), landing.bytes);
    }
    queue.pop_front();
    ++landed_[static_cast<std::size_t>(peer)];
    ++counters_.messages_received;
    counters_.bytes_received += message.bytes.size();
    return absl::OkStatus();
  }

  // Both under the group's mutex.
  void fail(const Status& status) {
    if (!group_->failure_.ok()) return;
    group_->failure_ = status;
    group_->failed_by_ = rank_;
    group_->changed_.notify_all();
  }
  Status failure() const {
    if (group_->failure_.ok() || group_->failed_by_ == rank_) return group_->failure_;
    const int blamed = blamedRank(group_->failure_).value_or(group_->failed_by_);
    return abortedBy(group_->failed_by_, blamed, group_->failure_.code(),
                     std::string(group_->failure_.message()));
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  std::vector<std::deque<Receive>> receives_;  // by peer, as the rest
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> posted_;
  std::vector<std::uint64_t> landed_;
  Counters counters_;
};

std::unique_ptr<Transport> Group::join(int rank) {
  TY_CHECK(rank >= 0 && rank < size_, "a rank of this group");
  return std::make_unique<Member>(shared_from_this(), rank);
}

}  // namespace

std::shared_ptr<InProcessGroup> InProcessGroup::create(int size) {
  TY_CHECK(size >= 1 && size <= kMaxRanks, "1 to kMaxRanks ranks");
  return std::make_shared<Group>(size);
}

}  // namespace trainyard::runtime::transport
