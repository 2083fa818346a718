#include "operator/kube/http_exchange.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace trainyard::control::internal {

namespace {

constexpr std::size_t kMaxWaiting = std::size_t{1} << 20;

// Only what cpprestsdk writes into is real; nobody reads from it.
class BodySink : public concurrency::streams::details::streambuf_state_manager<std::uint8_t> {
 public:
  explicit BodySink(std::shared_ptr<HttpExchange> exchange)
      : streambuf_state_manager(std::ios_base::out), exchange_(std::move(exchange)) {}
  ~BodySink() override = default;

  bool can_seek() const override { return false; }
  bool has_size() const override { return false; }
  std::size_t buffer_size(std::ios_base::openmode) const override { return 0; }
  void set_buffer_size(std::size_t, std::ios_base::openmode) override {}
  std::size_t in_avail() const override { return 0; }
  pos_type getpos(std::ios_base::openmode) const override { return traits::eof(); }
  pos_type seekpos(pos_type, std::ios_base::openmode) override { return traits::eof(); }
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override {
    return traits::eof();
  }
  bool acquire(std::uint8_t*& data, std::size_t& count) override {
    data = nullptr;
    count = 0;
    return false;
  }
  void release(std::uint8_t*, std::size_t) override {}

 protected:
  pplx::task<int_type> _putc(std::uint8_t byte) override {
    return exchange_->onData(&byte, 1).then([byte](std::size_t) -> int_type { return byte; });
  }
  pplx::task<std::size_t> _putn(const std::uint8_t* data, std::size_t count, bool) override {
    return exchange_->onData(data, count);
  }
  pplx::task<std::size_t> _putn(const std::uint8_t* data, std::size_t count) override {
    return exchange_->onData(data, count);
  }
  pplx::task<int_type> _bumpc() override { return end(); }
  int_type _sbumpc() override { return traits::eof(); }
  pplx::task<int_type> _getc() override { return end(); }
  int_type _sgetc() override { return traits::eof(); }
  pplx::task<int_type> _nextc() override { return end(); }
  pplx::task<int_type> _ungetc() override { return end(); }
  pplx::task<std::size_t> _getn(std::uint8_t*, std::size_t) override {
    return pplx::task_from_result<std::size_t>(0);
  }
  std::size_t _scopy(std::uint8_t*, std::size_t) override { return 0; }
  pplx::task<bool> _sync() override { return pplx::task_from_result(true); }
  std::uint8_t* _alloc(std::size_t) override { return nullptr; }
  void _commit(std::size_t) override {}

 private:
  static pplx::task<int_type> end() { return pplx::task_from_result<int_type>(traits::eof()); }

  const std::shared_ptr<HttpExchange> exchange_;
};

// Limits may be as long as one likes.
TimePoint later(TimePoint at, Duration by) {
  return by > TimePoint::max() - at ? TimePoint::max() : at + by;
}

}  // namespace

concurrency::streams::streambuf<std::uint8_t> HttpExchange::makeSink(
    const std::shared_ptr<HttpExchange>& exchange) {
  return {std::make_shared<BodySink>(exchange)};
}

void HttpExchange::onSent() {
  const Lock lock(mutex_);
  if (left_) return;
  sent_ = true;
  progress_ = clock_.now();
}

void HttpExchange::onHead(HttpResponse head) {
  const Lock lock(mutex_);
  if (left_) return;
  head_ = std::move(head);
  progress_ = clock_.now();
  changed_.notify_all();
}

pplx::task<std::size_t> HttpExchange::onData(const std::uint8_t* data, std::size_t size) {
  const Lock lock(mutex_);
  if (left_) return pplx::task_from_result(size);
  data_.append(reinterpret_cast<const char*>(data), size);
  progress_ = clock_.now();
  changed_.notify_all();
  if (data_.size() < kMaxWaiting) return pplx::task_from_result(size);
  room_.emplace();
  room_for_ = size;
  return pplx::create_task(*room_);
}

void HttpExchange::onDone(Status status) {
  const Lock lock(mutex_);
  done_ = std::move(status);
  changed_.notify_all();
}

bool HttpExchange::readyLocked() const {
  return done_ || (head_taken_ ? !data_.empty() : head_.has_value());
}

std::optional<HttpExchange::Outcome> HttpExchange::takeLocked(
    Lock& lock, const std::function<bool(const HttpResponse&)>& on_head,
    const std::function<bool(std::string_view)>& on_data) {
  bool go_on = true;
  if (head_ && !head_taken_) {
    head_taken_ = true;
    lock.unlock();
    go_on = on_head(*head_);  // nobody writes it any more
  } else if (head_taken_ && !data_.empty()) {
    const std::string data = std::exchange(data_, {});
    const auto room = std::exchange(room_, {});
    const std::size_t size = room_for_;
    lock.unlock();
    if (room) room->set(size);
    go_on = on_data(data);
  } else {
    return Outcome{*done_, done_->ok()};
  }
  lock.lock();
  progress_ = std::max(progress_, clock_.now());
  if (!go_on) return Outcome{absl::OkStatus(), done_ && done_->ok() && data_.empty()};
  return std::nullopt;
}

std::optional<Status> HttpExchange::limitLocked(const HttpLimits& limits, TimePoint began) const {
  if (limits.stop.stop_requested()) return absl::CancelledError("stopped");
  const TimePoint now = clock_.now();
  if (now >= later(began, limits.deadline)) {
    return absl::DeadlineExceededError(
        fmt::format("not done within {:.1f} s", toSeconds(limits.deadline)));
  }
  if (!readyLocked() && now >= later(progress_, limits.inactivity)) {
    return absl::DeadlineExceededError(
        fmt::format("nothing heard for {:.1f} s", toSeconds(limits.inactivity)));
  }
  return std::nullopt;
}

HttpExchange::Outcome HttpExchange::consume(const HttpLimits& limits,
                                            const std::function<bool(const HttpResponse&)>& on_head,
                                            const std::function<bool(std::string_view)>& on_data) {
  const TimePoint began = clock_.now();
  Lock lock(mutex_);
  progress_ = began;
  for (;;) {
    const TimePoint until =
        std::min(later(began, limits.deadline), later(progress_, limits.inactivity));
    changed_.wait_until(lock, limits.stop, until, [this] { return readyLocked(); });
    std::optional<Outcome> outcome;
    if (auto limit = limitLocked(limits, began)) {
      outcome = Outcome{*std::move(limit), false};
    } else if (readyLocked()) {
      outcome = takeLocked(lock, on_head, on_data);
    }
    if (!outcome) continue;
    if (sent_) outcome->status = markMaybeHappened(std::move(outcome->status));
    leave(lock);
    return *std::move(outcome);
  }
}

void HttpExchange::leave(Lock& lock) {
  left_ = true;
  const auto room = std::exchange(room_, {});
  const std::size_t size = room_for_;
  lock.unlock();
  if (room) room->set(size);
}

}  // namespace trainyard::control::internal
