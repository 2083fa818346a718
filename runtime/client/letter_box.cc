#include "runtime/client/letter_box.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/transport/transport.h"

namespace trainyard::runtime::client {
namespace {

bool wants(const PostedReceive& receive, int from, const Letter& letter) {
  return (receive.from == -1 || receive.from == from) && receive.tag == letter.tag;
}

Status fits(const PostedReceive& receive, int from, const Letter& letter) {
  if (receive.into.type == letter.type && receive.into.elements == letter.elements) {
    return absl::OkStatus();
  }
  return transport::withBlamedRank(
      absl::FailedPreconditionError(fmt::format("receive of {} {} from rank {}: it has sent {} {}",
                                                receive.into.elements, nameOf(receive.into.type),
                                                from, letter.elements, nameOf(letter.type))),
      from);
}

Delivered deliver(const PostedReceive& receive, int from, Status status) {
  receive.work->setSource(from);
  return {receive.work, std::move(status)};
}

std::string placeOf(const PostedReceive& receive) {
  const std::string whom = receive.from < 0 ? "any rank" : fmt::format("rank {}", receive.from);
  return fmt::format("receive of {} {} from {}, tag {}", receive.into.elements,
                     nameOf(receive.into.type), whom, receive.tag);
}

}  // namespace

void finishAll(std::span<const Delivered> delivered) {
  for (const Delivered& each : delivered) each.work->finish(each.status);
}

std::optional<Delivered> LetterBox::post(PostedReceive receive) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Arrival& arrival) {
    return wants(receive, arrival.from, arrival.letter);
  });
  if (found == kept_.end()) {
    posted_.push_back(std::move(receive));
    return std::nullopt;
  }
  const Arrival arrival = std::move(*found);
  kept_.erase(found);
  Status status = fits(receive, arrival.from, arrival.letter);
  if (status.ok()) std::copy(arrival.kept.begin(), arrival.kept.end(), receive.into.data);
  return deliver(receive, arrival.from, std::move(status));
}

Arrival LetterBox::arriving(int from, const Letter& letter) {
  Arrival arrival{from, letter, nullptr, {}, std::nullopt, absl::OkStatus()};
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const PostedReceive& each) {
    return wants(each, from, letter);
  });
  if (found != posted_.end()) {
    arrival.refused = fits(*found, from, letter);
    arrival.receive = std::move(*found);
    posted_.erase(found);
  }
  if (arrival.receive && arrival.refused.ok()) {
    arrival.into = arrival.receive->into.data;
  } else {
    arrival.kept.resize(letter.bytes());
    arrival.into = arrival.kept.data();
  }
  return arrival;
}

std::optional<Delivered> LetterBox::arrived(Arrival arrival) {
  if (arrival.receive) return deliver(*arrival.receive, arrival.from, arrival.refused);
  // One may have been posted while the bytes came.
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const PostedReceive& each) {
    return wants(each, arrival.from, arrival.letter);
  });
  if (found == posted_.end()) {
    arrival.into = nullptr;
    kept_.push_back(std::move(arrival));
    return std::nullopt;
  }
  const PostedReceive receive = std::move(*found);
  posted_.erase(found);
  kept_.push_back(std::move(arrival));
  return post(receive);
}

std::vector<Delivered> LetterBox::lose(int peer, const Status& why, bool nobody_left) {
  std::vector<Delivered> failed;
  std::erase_if(posted_, [&](const PostedReceive& receive) {
    const bool hopeless = receive.from == peer || (receive.from == -1 && nobody_left);
    if (hopeless) failed.push_back({receive.work, annotate(why, placeOf(receive))});
    return hopeless;
  });
  return failed;
}

std::vector<Delivered> LetterBox::failAll(const Status& why) {
  std::vector<Delivered> failed;
  for (const PostedReceive& receive : std::exchange(posted_, {})) {
    failed.push_back({receive.work, why});
  }
  return failed;
}

std::vector<Delivered> LetterBox::expire(TimePoint now) {
  std::vector<Delivered> failed;
  std::erase_if(posted_, [&](const PostedReceive& receive) {
    if (receive.deadline > now) return false;
    Status silent = absl::DeadlineExceededError(placeOf(receive) + ": it has not come in time");
    if (receive.from >= 0) silent = transport::withBlamedRank(silent, receive.from);
    failed.push_back({receive.work, std::move(silent)});
    return true;
  });
  return failed;
}

std::optional<TimePoint> LetterBox::nextDeadline() const {
  std::optional<TimePoint> next;
  for (const PostedReceive& receive : posted_) {
    if (!next || receive.deadline < *next) next = receive.deadline;
  }
  return next;
}

}  // namespace trainyard::runtime::client
