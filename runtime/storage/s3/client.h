// The verbs of the S3 API that files need (Amazon S3 API Reference), signed, with what passes by
// itself tried again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "base/core/rng.h"
#include "base/core/status.h"
#include "runtime/storage/s3/answers.h"
#include "runtime/storage/s3/config.h"
#include "runtime/storage/s3/http.h"
#include "runtime/storage/s3/keys.h"

namespace trainyard::runtime::s3 {

// How long is waited before a request is sent again: "full jitter" between half of it and all
// (Brooker, "Exponential Backoff And Jitter", 2015). Nothing: it is given up. `failures` >= 1 so
// far, since `spent`; `unit` in [0, 1).
std::optional<Duration> delayBeforeRetry(int failures, Duration spent, double unit);

// A part of an object, and the object's own size and version.
struct ObjectPart {
  std::string bytes;
  std::uint64_t size = 0;
  std::string tag;  // ETag
};

// Thread-safe. Errors name the object: NOT_FOUND, ALREADY_EXISTS (put and completeUpload that are
// exclusive), PERMISSION_DENIED with the store's words, RESOURCE_EXHAUSTED where it is full,
// UNAVAILABLE once tries are given up, FAILED_PRECONDITION for other refusals.
class Client {
 public:
  struct Surroundings {
    const Clock& clock;
    std::function<void(Duration)> pause;
  };
  Client(S3Config config, std::unique_ptr<Http> http, Surroundings surroundings);

  const S3Config& config() const { return config_; }

  // At most `length` bytes from `offset` on, fewer only at the object's end. With a tag, of that
  // version, else DATA_LOSS.
  StatusOr<ObjectPart> get(const ObjectName& name, std::uint64_t offset, std::size_t length,
                           const std::string& tag = "");
  Status put(const ObjectName& name, std::span<const std::byte> body, bool exclusively);
  // Of what begins with `prefix` and has no "/" behind it.
  StatusOr<std::vector<StoredFile>> list(const std::string& bucket, const std::string& prefix);
  Status remove(const ObjectName& name);

  // An object in parts of at least 5 MiB but for the last (multipart upload).
  StatusOr<std::string> beginUpload(const ObjectName& name);
  // `number` from 1 on; gives the part's tag.
  StatusOr<std::string> uploadPart(const ObjectName& name, const std::string& upload, int number,
                                   std::span<const std::byte> body);
  Status completeUpload(const ObjectName& name, const std::string& upload,
                        const std::vector<std::string>& tags, bool exclusively);
  // Tries once.
  void abortUpload(const ObjectName& name, const std::string& upload);

 private:
  struct Answer {
    Response response;
    bool repeated = false;  // an earlier try may have been carried out
  };
  Request request(std::string method, const ObjectName& name) const;
  StatusOr<Answer> send(const ObjectName& name, Request request, std::size_t max_body);
  StatusOr<Response> sendOnce(const Request& request, std::size_t max_body);
  double unit();
  bool holds(const ObjectName& name, std::span<const std::byte> body);

  const S3Config config_;
  const std::unique_ptr<Http> http_;
  const Surroundings surroundings_;
  KeyRing keys_;
  std::mutex mutex_;
  Rng rng_;
};

}  // namespace trainyard::runtime::s3
