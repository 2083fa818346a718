#include "runtime/client/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

namespace trainyard::runtime::client {
namespace {

std::atomic<std::uint64_t> generation = 0;

// Never destroyed: a fork may come while the process ends.
struct Registry {
  std::mutex mutex;
  std::vector<ClosedInChildren*> all;
};
Registry& registry();

void beforeFork() {
  registry().mutex.lock();
}
void inParent() {
  registry().mutex.unlock();
}
void inChild() {
  ++generation;
  for (ClosedInChildren* each : registry().all) each->closeAll();
  registry().all.clear();
  registry().mutex.unlock();
}

Registry& registry() {
  static Registry& instance = [&]() -> Registry& {
    ::pthread_atfork(beforeFork, inParent, inChild);
    return *std::make_unique<Registry>().release();
  }();
  return instance;
}

}  // namespace

std::uint64_t processGeneration() {
  return generation.load(std::memory_order_relaxed);
}

ClosedInChildren::~ClosedInChildren() {
  clear();
}

void ClosedInChildren::add(int fd) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (std::find(all.all.begin(), all.all.end(), this) == all.all.end()) all.all.push_back(this);
  fds_.push_back(fd);
}

void ClosedInChildren::clear() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase(all.all, this);
  fds_.clear();
}

void ClosedInChildren::closeAll() {
  for (const int fd : fds_) ::close(fd);
}

}  // namespace trainyard::runtime::client
