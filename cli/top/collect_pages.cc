#include "cli/top/collect_pages.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

namespace trainyard::cli {
namespace {

constexpr std::size_t kAtOnce = 16;

}  // namespace

StatusOr<TaskPages> collectPages(
    const std::vector<control::TaskKey>& keys,
    const std::function<StatusOr<std::string>(const control::TaskKey&)>& fetch) {
  TaskPages pages;
  std::optional<Status> failure;
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t at = next++; at < keys.size(); at = next++) {
      StatusOr<std::string> page = fetch(keys[at]);
      const std::lock_guard lock(mutex);
      if (page.ok()) {
        pages[keys[at]] = *std::move(page);
      } else if (!failure) {
        failure = page.status();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(keys.size(), kAtOnce); ++i) threads.emplace_back(work);
    work();
  }
  if (pages.empty() && failure) return *failure;
  return pages;
}

}  // namespace trainyard::cli
