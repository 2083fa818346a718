// One request and its response, between cpprestsdk's threads and the one that waits for it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "cpprest/astreambuf.h"
#include "operator/kube/http.h"
#include "pplx/pplxtasks.h"

namespace trainyard::control::internal {

// cpprestsdk reports by the on...() functions from its threads, in order; one caller consumes.
// Shared by both, since the caller may leave while cpprestsdk still works: then it finds nobody.
// Thread-safe.
class HttpExchange {
 public:
  explicit HttpExchange(const Clock& clock) : clock_(clock), progress_(clock.now()) {}

  // The request is on its way, perhaps whole.
  void onSent();
  void onHead(HttpResponse head);
  // The returned task is complete when more may come: what nobody has taken yet is bounded, so the
  // server is held back by TCP.
  pplx::task<std::size_t> onData(const std::uint8_t* data, std::size_t size);
  // Last. OK: the response is complete.
  void onDone(Status status);

  struct Outcome {
    Status status;
    bool complete = false;  // the connection can be used again
  };
  // As HttpTransport::stream().
  Outcome consume(const HttpLimits& limits, const std::function<bool(const HttpResponse&)>& on_head,
                  const std::function<bool(std::string_view)>& on_data);

  // A buffer for response bodies that calls onData().
  static concurrency::streams::streambuf<std::uint8_t> makeSink(
      const std::shared_ptr<HttpExchange>& exchange);

 private:
  using Lock = std::unique_lock<std::mutex>;
  std::optional<Outcome> takeLocked(Lock& lock,
                                    const std::function<bool(const HttpResponse&)>& on_head,
                                    const std::function<bool(std::string_view)>& on_data);
  std::optional<Status> limitLocked(const HttpLimits& limits, TimePoint began) const;
  void leave(Lock& lock);
  bool readyLocked() const;

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  TimePoint progress_;
  bool sent_ = false;
  bool left_ = false;  // the caller has gone
  std::optional<HttpResponse> head_;
  bool head_taken_ = false;
  std::string data_;
  // Of the write that waits for room, and its size.
  std::optional<pplx::task_completion_event<std::size_t>> room_;
  std::size_t room_for_ = 0;
  std::optional<Status> done_;
};

}  // namespace trainyard::control::internal
