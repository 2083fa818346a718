// One transport under several collectives of a group, which take turns with it: on all ranks in the
// same order.
#pragma once

#include <memory>
#include <utility>

#include "runtime/transport/transport.h"

namespace trainyard::runtime::collective::internal {

class SharedTransport : public transport::Transport {
 public:
  explicit SharedTransport(std::shared_ptr<transport::Transport> shared)
      : shared_(std::move(shared)) {}

  int rank() const override { return shared_->rank(); }
  int size() const override { return shared_->size(); }
  std::uint64_t send(int peer, const transport::MessageId& id,
                     std::span<const std::byte> bytes) override {
    return shared_->send(peer, id, bytes);
  }
  std::uint64_t receive(int peer, const transport::MessageId& id,
                        const transport::Landing& landing) override {
    return shared_->receive(peer, id, landing);
  }
  Status waitSent(int peer, std::uint64_t count, const transport::Wait& wait) override {
    return shared_->waitSent(peer, count, wait);
  }
  Status waitReceived(int peer, std::uint64_t count, const transport::Wait& wait) override {
    return shared_->waitReceived(peer, count, wait);
  }
  Status check() override { return shared_->check(); }
  Status watch(transport::OutsideWait& wait) override { return shared_->watch(wait); }
  void endWatch(const transport::OutsideWait& wait) override { shared_->endWatch(wait); }
  bool hasLeft(int peer) const override { return shared_->hasLeft(peer); }
  void abort(const Status& status) override { shared_->abort(status); }
  const transport::Counters& counters() const override { return shared_->counters(); }

 private:
  const std::shared_ptr<transport::Transport> shared_;
};

}  // namespace trainyard::runtime::collective::internal
