// Keeps an ObjectStore as the apiserver has it: lists, then watches from there, for ever.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "operator/cache/list_watch.h"
#include "operator/cache/object_store.h"
#include "operator/cache/reflector_machine.h"

namespace trainyard::control {

struct ReflectorCallbacks {
  // Takes from an arriving object what nobody needs. Default: trimObject().
  std::function<void(nlohmann::json&)> trim;
  // After the store has changed. Never empty.
  std::function<void(const std::vector<ObjectChange>&)> changed;
  // A list or watch failed; it goes on by itself. UNAUTHENTICATED and PERMISSION_DENIED may well
  // stay: the program decides.
  std::function<void(const Status&)> failed;
};

// Since the start.
struct ReflectorCounts {
  std::uint64_t lists = 0;          // complete ones, initial events of a watch included
  std::uint64_t items = 0;          // in them
  double list_seconds = 0;          // that they took
  std::uint64_t watches = 0;        // begun
  std::uint64_t short_watches = 0;  // that ended within a second without an event
  std::uint64_t events = 0;         // bookmarks included
  std::uint64_t failures = 0;
  std::uint64_t last_version = 0;  // the newest one seen; no count
};

// A write to one of the objects, as its answer came; the default: none.
struct WriteMark {
  std::uint64_t version = 0;
  std::uint64_t lists = 0;  // begun by then
};

// Lifecycle: construct, start(), stop() or the destructor. Callbacks come from the reflector's
// thread, without a lock held; they must not call stop(). `source` and `clock` outlive it; the
// store lives as long as the reflector.
class Reflector {
 public:
  // `name` for logs, as "pods".
  Reflector(std::string name, ListWatch& source, const Clock& clock, ReflectorOptions options,
            ReflectorCallbacks callbacks, DigestFunction digest = {});
  ~Reflector();

  void start();
  // Ends a list or watch under way; afterwards no callback comes.
  void stop();

  const std::string& name() const { return name_; }
  const ObjectStore& store() const { return store_; }
  // The first list is complete.
  bool hasSynced() const;
  // Waits for that; DEADLINE_EXCEEDED names the reflector and its last failure.
  Status waitForSync(Duration timeout) const;
  ReflectorCounts counts() const;

  // To be taken when the answer of a write is there, which left the object at `version`.
  WriteMark mark(std::uint64_t version) const;
  // The store shows that write, or what came after it: its version was seen, or a list that began
  // after the answer. Versions alone would not do: those of a server that was restored from a
  // backup begin again lower.
  bool shows(const WriteMark& write) const;

 private:
  void loop(const std::stop_token& stop);
  void list(const ReflectorMachine::List& action, const std::stop_token& stop);
  void watch(const ReflectorMachine::Watch& action, const std::stop_token& stop);
  void trim(nlohmann::json& object) const;
  void onEvent(WatchEvent event);
  void beginList(TimePoint now);
  void noteList(TimePoint began);
  // Ends a stream of initial events that has been silent for too long; until `over`.
  void guardStream(std::stop_source& stream, const std::stop_token& over);
  void report(const std::vector<ObjectChange>& changes);
  void noteFailure(const Status& status);

  const std::string name_;
  ListWatch& source_;
  const Clock& clock_;
  const ReflectorCallbacks callbacks_;
  ObjectStore store_;
  const Duration stream_silence_;
  ReflectorMachine machine_;  // the thread's alone
  TimePoint list_began_;      // likewise
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  bool synced_ = false;
  Status last_failure_;
  TimePoint heard_;         // when the last event came
  bool streaming_ = false;  // as machine_.streaming(), for others
  std::uint64_t lists_begun_ = 0;
  std::uint64_t list_shown_ = 0;  // by the store: which of these
  ReflectorCounts counts_;
  std::jthread thread_;
};

// Drops metadata.managedFields and the annotation of `kubectl apply`.
void trimObject(nlohmann::json& object);

}  // namespace trainyard::control
