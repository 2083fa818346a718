#include "runtime/lanes/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/core/check.h"

namespace trainyard::runtime::lanes {
namespace {

constexpr std::size_t kMostEvents = 64;

// OpenSSL writes to sockets in a way that ends the process where the other side has closed.
void blockSigPipe() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

epoll_event eventOf(EventLoop::Source* source, bool writable) {
  epoll_event event{};
  event.events = EPOLLIN | (writable ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  event.data.ptr = source;
  return event;
}

}  // namespace

StatusOr<std::unique_ptr<EventLoop>> EventLoop::start(Duration period, std::function<void()> tick) {
  UniqueFd poll(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll.valid()) return errnoStatus(errno, "epoll");
  TY_ASSIGN_OR_RETURN(WakeUp wake, WakeUp::create());
  std::unique_ptr<EventLoop> loop(new EventLoop(period, std::move(tick), std::move(wake)));
  loop->poll_ = std::move(poll);
  epoll_event event = eventOf(nullptr, false);
  if (::epoll_ctl(loop->poll_.get(), EPOLL_CTL_ADD, loop->wake_.fd(), &event) != 0)
    return errnoStatus(errno, "epoll");
  // Until it has the lock, here() does not know its thread.
  std::lock_guard lock(loop->mutex_);
  loop->thread_ = std::thread([self = loop.get()] { self->run(); });
  return loop;
}

EventLoop::EventLoop(Duration period, std::function<void()> tick, WakeUp wake)
    : wake_(std::move(wake)), period_(period), tick_(std::move(tick)) {}

EventLoop::~EventLoop() {
  stop();
}

void EventLoop::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.wake();
  if (thread_.joinable()) thread_.join();
}

void EventLoop::post(std::function<void()> task) {
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    first = posted_.empty();
    posted_.push_back(std::move(task));
  }
  // The loop itself looks before it waits.
  if (first && !here()) wake_.wake();
}

bool EventLoop::anyPosted() {
  std::lock_guard lock(mutex_);
  return !posted_.empty();
}

void EventLoop::runPosted() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (const auto& task : tasks) task();
}

void EventLoop::run() {
  blockSigPipe();
  { std::lock_guard lock(mutex_); }
  std::array<epoll_event, kMostEvents> events;
  TimePoint next_tick = systemClock().now() + period_;
  for (;;) {
    const TimePoint now = systemClock().now();
    if (now >= next_tick) {
      tick_();
      next_tick = now + period_;
    }
    auto wait = std::chrono::ceil<std::chrono::milliseconds>(next_tick - now);
    if (anyPosted()) wait = wait.zero();
    const int count = ::epoll_wait(poll_.get(), events.data(), kMostEvents,
                                   static_cast<int>(std::max<std::int64_t>(wait.count(), 0)));
    TY_CHECK(count >= 0 || errno == EINTR, "the loop's own descriptor");
    removed_.clear();
    for (int i = 0; i < count; ++i) {
      auto* source = static_cast<Source*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (source == nullptr) {
        wake_.clear();
      } else if (std::find(removed_.begin(), removed_.end(), source) == removed_.end()) {
        source->onReady();
      }
    }
    runPosted();
    std::unique_lock lock(mutex_);
    if (!stopped_) continue;
    lock.unlock();
    runPosted();
    return;
  }
}

void EventLoop::add(int fd, Source& source, bool writable) {
  epoll_event event = eventOf(&source, writable);
  TY_CHECK(::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "a descriptor of a socket");
}

void EventLoop::change(int fd, Source& source, bool writable) {
  epoll_event event = eventOf(&source, writable);
  TY_CHECK(::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, fd, &event) == 0, "a descriptor of the loop");
}

void EventLoop::remove(int fd, const Source& source) {
  ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  removed_.push_back(&source);
}

}  // namespace trainyard::runtime::lanes
