#include "operator/cache/reflector_machine.h"

#include <algorithm>
#include <utility>

namespace trainyard::control {

namespace {

bool saysThatAllIsIn(const nlohmann::json& bookmark) {
  const auto metadata = bookmark.find("metadata");
  if (metadata == bookmark.end() || !metadata->is_object()) return false;
  const auto annotations = metadata->find("annotations");
  if (annotations == metadata->end() || !annotations->is_object()) return false;
  const auto end = annotations->find(kInitialEventsEnd);
  return end != annotations->end() && *end == "true";
}

}  // namespace

ReflectorMachine::ReflectorMachine(ReflectorOptions options, ObjectStore& store)
    : options_(options), store_(store), rng_(options.seed), stream_(options.stream) {
  startList(true);
}

void ReflectorMachine::startList(bool in_pages) {
  listing_ = true;
  in_pages_ = in_pages;
  continue_token_.clear();
  streaming_ = false;
  listed_.clear();
}

ReflectorMachine::Action ReflectorMachine::next(TimePoint now) {
  if (wait_until_) {
    if (now < *wait_until_) return Wait{*wait_until_};
    wait_until_.reset();
  }
  if (listing_ && !stream_) return List{in_pages_ ? options_.page_size : 0, continue_token_};
  watch_began_ = now;
  watch_saw_event_ = false;
  streaming_ = listing_;
  const Duration timeout =
      options_.watch_timeout + fromSeconds(toSeconds(options_.watch_timeout) * rng_.unit());
  return Watch{streaming_ ? std::string() : version_, timeout, streaming_};
}

void ReflectorMachine::keep(const nlohmann::json& object) {
  listed_[objectKey(object)] = store_.pack(object);
}

std::vector<ObjectChange> ReflectorMachine::onPage(ListPage page, TimePoint now) {
  for (const auto& item : page.items) keep(item);
  continue_token_ = std::move(page.continue_token);
  if (!continue_token_.empty()) return {};
  version_ = std::move(page.resource_version);
  listing_ = false;
  synced_ = true;
  return store_.replace(std::exchange(listed_, {}), parseResourceVersion(version_));
}

void ReflectorMachine::onListFailed(const Status& status, Duration retry_after, TimePoint now) {
  const bool expired = status.code() == absl::StatusCode::kOutOfRange;
  if (expired && !continue_token_.empty()) {
    // Pages take longer than the server remembers.
    startList(false);
    return;
  }
  startList(in_pages_);
  fail(retry_after, now);
}

// What is newer than a part of the initial events may come among them.
std::vector<ObjectChange> ReflectorMachine::onInitialEvent(const WatchEvent& event) {
  if (event.type == WatchEvent::Type::kDeleted) {
    listed_.erase(objectKey(event.object));
    return {};
  }
  if (event.type != WatchEvent::Type::kBookmark) {
    keep(event.object);
    return {};
  }
  if (!saysThatAllIsIn(event.object)) return {};
  std::map<ObjectKey, PackedPtr> objects = std::exchange(listed_, {});
  startList(true);
  listing_ = false;
  synced_ = true;
  const std::uint64_t version = objectVersion(event.object);
  version_ = std::to_string(version);
  return store_.replace(std::move(objects), version);
}

std::vector<ObjectChange> ReflectorMachine::onEvent(const WatchEvent& event) {
  watch_saw_event_ = true;
  if (streaming_) return onInitialEvent(event);
  const std::uint64_t version = objectVersion(event.object);
  if (version != 0) version_ = std::to_string(version);
  switch (event.type) {
    case WatchEvent::Type::kBookmark:
      store_.advance(version);
      return {};
    case WatchEvent::Type::kDeleted:
      return store_.erase(event.object);
    default:
      return store_.put(event.object);
  }
}

void ReflectorMachine::onStreamEnded(const Status& status, Duration retry_after, TimePoint now) {
  startList(true);
  const bool is_offered =
      !status.ok() && !absl::IsInvalidArgument(status) && !absl::IsDeadlineExceeded(status);
  if (is_offered) return fail(retry_after, now);
  stream_ = false;
}

void ReflectorMachine::onWatchEnded(const Status& status, Duration retry_after, TimePoint now) {
  if (streaming_) return onStreamEnded(status, retry_after, now);
  if (status.code() == absl::StatusCode::kOutOfRange) {
    // What has been deleted meanwhile will be missing in the list.
    startList(true);
    // A server that refuses even what it has just listed is not asked without a pause.
    if (!watch_saw_event_ && now - watch_began_ < kShortWatch) fail(retry_after, now);
    return;
  }
  // One that held for a while was no vain attempt, however it ended.
  if (now - watch_began_ >= kShortWatch) failures_ = 0;
  const bool nothing = !watch_saw_event_ && now - watch_began_ < kShortWatch;
  // Not a passing one: perhaps the list says better what is wrong, or that nothing is.
  if (!status.ok() && failureClass(status) == FailureClass::kPermanent) startList(true);
  if (!status.ok() || nothing) fail(retry_after, now);
}

void ReflectorMachine::fail(Duration retry_after, TimePoint now) {
  if (failures_ > 0 && now - last_failure_ > options_.backoff_reset) failures_ = 0;
  double seconds = toSeconds(options_.backoff);
  for (int i = 0; i < failures_ && seconds < toSeconds(options_.max_backoff); ++i) seconds *= 2;
  seconds = std::min(seconds, toSeconds(options_.max_backoff));
  ++failures_;
  last_failure_ = now;
  const Duration wait = fromSeconds(seconds * (1 + rng_.unit()));
  wait_until_ = now + std::max(wait, retry_after);
}

}  // namespace trainyard::control
