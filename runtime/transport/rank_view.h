// Some ranks of a group as a group of their own: messages go over the transport of all of them,
// and failures name ranks of the whole group.
#pragma once

#include <utility>
#include <vector>

#include "runtime/transport/transport.h"

namespace trainyard::runtime::transport {

class RankView : public Transport {
 public:
  // `members` are ranks of `all`, which outlives this; `place` is where its own rank is among them.
  RankView(Transport& all, std::vector<int> members, int place)
      : all_(all), members_(std::move(members)), place_(place) {}

  int rank() const override { return place_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::uint64_t send(int peer, const MessageId& id, std::span<const std::byte> bytes) override {
    return all_.send(rankOf(peer), id, bytes);
  }
  std::uint64_t receive(int peer, const MessageId& id, const Landing& landing) override {
    return all_.receive(rankOf(peer), id, landing);
  }
  Status waitSent(int peer, std::uint64_t count, const Wait& wait) override {
    return all_.waitSent(rankOf(peer), count, wait);
  }
  Status waitReceived(int peer, std::uint64_t count, const Wait& wait) override {
    return all_.waitReceived(rankOf(peer), count, wait);
  }
  Status check() override { return all_.check(); }
  // Of a rank of the whole group.
  Status watch(OutsideWait& wait) override { return all_.watch(wait); }
  void endWatch(const OutsideWait& wait) override { all_.endWatch(wait); }
  bool hasLeft(int peer) const override { return all_.hasLeft(rankOf(peer)); }
  void abort(const Status& status) override { all_.abort(status); }
  const Counters& counters() const override { return all_.counters(); }

 private:
  int rankOf(int peer) const { return members_[static_cast<std::size_t>(peer)]; }

  Transport& all_;
  const std::vector<int> members_;
  const int place_;
};

}  // namespace trainyard::runtime::transport
