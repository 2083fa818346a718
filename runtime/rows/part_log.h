// What a part has taken while others copy it, so that who has had all of its rows once needs only
// what came behind them. No sockets, no clock, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace trainyard::runtime::rows {

struct PartUpdate;

// A mark says how far a follower is. Marks grow as long as the process lives; one of a former log
// is known as such.
class PartLog {
 public:
  using Updates = std::vector<std::shared_ptr<const PartUpdate>>;

  bool followed() const { return !followers_.empty(); }
  // A follower (a server's number) is given all that there is now. `life`: counts the logs of the
  // process, from 1; used where this one begins. Returns the mark.
  std::uint64_t begin(int follower, std::uint64_t life);
  // Taken by the part; kept where somebody follows. Where more bytes than `most` are kept, all are
  // forgotten: the rows themselves are not much more.
  void add(std::shared_ptr<const PartUpdate> update, std::size_t most);
  // What came behind `mark`, which the follower has; nothing: it is not here any more.
  std::optional<Updates> since(int follower, std::uint64_t mark);
  std::uint64_t mark() const { return first_ + updates_.size(); }
  // Nobody else follows any more.
  void keepFollowers(const std::set<int>& followers);
  // Of gradients.
  std::size_t bytes() const { return bytes_; }

 private:
  void forgetRead();
  void stop();

  std::uint64_t first_ = 0;  // before the first of updates_
  std::deque<std::shared_ptr<const PartUpdate>> updates_;
  std::size_t bytes_ = 0;
  std::map<int, std::uint64_t> followers_;  // what each has, as far as it has said
};

}  // namespace trainyard::runtime::rows
