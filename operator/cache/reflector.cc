#include "operator/cache/reflector.h"

#include <utility>

#include "base/core/check.h"
#include "base/core/log.h"
#include "fmt/format.h"

namespace trainyard::control {

Reflector::Reflector(std::string name, ListWatch& source, const Clock& clock,
                     ReflectorOptions options, ReflectorCallbacks callbacks, DigestFunction digest)
    : name_(std::move(name)),
      source_(source),
      clock_(clock),
      callbacks_(std::move(callbacks)),
      store_(std::move(digest)),
      stream_silence_(options.stream_silence),
      machine_(options, store_) {}

Reflector::~Reflector() {
  stop();
}

void Reflector::start() {
  TY_CHECK(!thread_.joinable(), "a reflector is started once");
  thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

void Reflector::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void Reflector::loop(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const ReflectorMachine::Action action = machine_.next(clock_.now());
    if (const auto* wait = std::get_if<ReflectorMachine::Wait>(&action)) {
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, stop, wait->until, [] { return false; });
    } else if (const auto* page = std::get_if<ReflectorMachine::List>(&action)) {
      list(*page, stop);
    } else {
      watch(std::get<ReflectorMachine::Watch>(action), stop);
    }
  }
}

void Reflector::trim(nlohmann::json& object) const {
  if (callbacks_.trim) {
    callbacks_.trim(object);
  } else {
    trimObject(object);
  }
}

void Reflector::list(const ReflectorMachine::List& action, const std::stop_token& stop) {
  if (action.continue_token.empty()) beginList(clock_.now());
  auto page = source_.list(action.limit, action.continue_token, stop);
  if (stop.stop_requested()) return;
  if (!page.ok()) {
    machine_.onListFailed(page.status(), source_.retryAfter(page.status()), clock_.now());
    noteFailure(page.status());
    return;
  }
  for (auto& item : page->items) trim(item);
  const bool is_last = page->continue_token.empty();
  report(machine_.onPage(*std::move(page), clock_.now()));
  if (is_last) noteList(list_began_);
}

void Reflector::beginList(TimePoint now) {
  list_began_ = now;
  const std::lock_guard lock(mutex_);
  ++lists_begun_;
}

void Reflector::noteList(TimePoint began) {
  const std::size_t items = store_.size();
  const std::lock_guard lock(mutex_);
  list_shown_ = lists_begun_;
  ++counts_.lists;
  counts_.items += items;
  counts_.list_seconds += toSeconds(clock_.now() - began);
  synced_ = true;
  streaming_ = false;
  changed_.notify_all();
}

void Reflector::onEvent(WatchEvent event) {
  // A bookmark is no object: what it says stands where objects have what nobody needs.
  if (event.type != WatchEvent::Type::kBookmark) trim(event.object);
  {
    const std::lock_guard lock(mutex_);
    ++counts_.events;
    heard_ = clock_.now();
  }
  const bool streamed = machine_.streaming();
  report(machine_.onEvent(std::move(event)));
  if (streamed && !machine_.streaming()) noteList(list_began_);
}

void Reflector::guardStream(std::stop_source& stream, const std::stop_token& over) {
  std::unique_lock lock(mutex_);
  while (streaming_ && !over.stop_requested()) {
    const TimePoint limit = heard_ + stream_silence_;
    if (clock_.now() >= limit) {
      lock.unlock();
      stream.request_stop();
      return;
    }
    changed_.wait_until(lock, over, limit, [this] { return !streaming_; });
  }
}

void Reflector::watch(const ReflectorMachine::Watch& action, const std::stop_token& stop) {
  const TimePoint began = clock_.now();
  if (action.initial_events) beginList(began);
  std::uint64_t events = 0;
  {
    const std::lock_guard lock(mutex_);
    ++counts_.watches;
    events = counts_.events;
    heard_ = began;
    streaming_ = action.initial_events;
  }
  std::stop_source ended;  // of this watch alone
  const std::stop_callback outer(stop, [&ended] { ended.request_stop(); });
  std::jthread guard;
  if (action.initial_events) {
    guard = std::jthread([&](const std::stop_token& over) { guardStream(ended, over); });
  }
  const WatchRequest request{action.resource_version, action.timeout, ended.get_token(),
                             action.initial_events};
  Status status = source_.watch(request, [&](WatchEvent event) {
    onEvent(std::move(event));
    return !ended.stop_requested();
  });
  if (stop.stop_requested()) return;
  if (ended.stop_requested()) {
    status = absl::DeadlineExceededError("the server does not end its initial events; listing");
  }
  machine_.onWatchEnded(status, source_.retryAfter(status), clock_.now());
  {
    const std::lock_guard lock(mutex_);
    const bool is_short = clock_.now() - began < kShortWatch && counts_.events == events;
    if (is_short) ++counts_.short_watches;
  }
  if (!status.ok()) noteFailure(status);
}

void Reflector::report(const std::vector<ObjectChange>& changes) {
  if (!changes.empty() && callbacks_.changed) callbacks_.changed(changes);
}

void Reflector::noteFailure(const Status& status) {
  TY_INFO("{}: {}", name_, std::string(status.message()));
  {
    const std::lock_guard lock(mutex_);
    ++counts_.failures;
    last_failure_ = status;
  }
  if (callbacks_.failed) callbacks_.failed(status);
}

bool Reflector::hasSynced() const {
  const std::lock_guard lock(mutex_);
  return synced_;
}

Status Reflector::waitForSync(Duration timeout) const {
  std::unique_lock lock(mutex_);
  if (changed_.wait_until(lock, clock_.now() + timeout, [this] { return synced_; })) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      fmt::format("{}: no list within {:.0f} s: {}", name_, toSeconds(timeout),
                  last_failure_.ok() ? "no answer" : std::string(last_failure_.message())));
}

WriteMark Reflector::mark(std::uint64_t version) const {
  const std::lock_guard lock(mutex_);
  return {version, lists_begun_};
}

bool Reflector::shows(const WriteMark& write) const {
  if (store_.newestVersion() >= write.version) return true;
  const std::lock_guard lock(mutex_);
  return list_shown_ > write.lists;
}

ReflectorCounts Reflector::counts() const {
  const std::lock_guard lock(mutex_);
  ReflectorCounts counts = counts_;
  counts.last_version = store_.newestVersion();
  return counts;
}

}  // namespace trainyard::control
