#include "runtime/storage/s3/client.h"

#include <algorithm>
#include <array>

#include "base/core/object_path.h"
#include "base/core/strings.h"
#include "base/security/random.h"
#include "fmt/format.h"

namespace trainyard::runtime::s3 {
namespace {

constexpr Duration kFirstDelay = std::chrono::milliseconds(100);
constexpr Duration kMostDelay = std::chrono::seconds(4);
constexpr Duration kPatience = std::chrono::seconds(15);
constexpr std::size_t kMostWords = 1u << 20;     // of an answer that is no object's content
constexpr std::size_t kMostListing = 16u << 20;  // 1,000 keys of 1,024 bytes, encoded

// Nothing came, or the store says that it passes.
bool passes(const StatusOr<Response>& response) {
  if (!response.ok()) return absl::IsUnavailable(response.status());
  constexpr std::array kPassing = {408, 429, 500, 502, 503, 504};
  if (std::ranges::find(kPassing, response->status) != kPassing.end()) return true;
  const std::string code = response->status / 100 == 2 ? "" : parseError(response->body).code;
  return code == "RequestTimeout" || code == "ConditionalRequestConflict" || code == "SlowDown";
}

// The keys are not good any more, or never were.
bool areOver(const Response& response) {
  constexpr std::array<std::string_view, 5> kCodes = {"ExpiredToken", "TokenRefreshRequired",
                                                      "InvalidToken", "InvalidTokenId",
                                                      "InvalidAccessKeyId"};
  if (response.status != 400 && response.status != 401 && response.status != 403) return false;
  return std::ranges::count(kCodes, parseError(response.body).code) > 0;
}

bool isFull(std::string_view code, int status) {
  return status == 507 || code == "XMinioStorageFull" || code == "QuotaExceeded" ||
         code == "XMinioAdminBucketQuotaExceeded";
}

// What an answer that is no success means.
Status refusal(const Response& response) {
  const ErrorAnswer error = parseError(response.body);
  const std::string words = error.code.empty()
                                ? fmt::format("the store answers {}", response.status)
                                : fmt::format("{}: {}", error.code, error.message);
  if (isFull(error.code, response.status)) return absl::ResourceExhaustedError(words);
  switch (response.status) {
    case 401:
    case 403:
      return absl::PermissionDeniedError(words);
    case 404:
      return absl::NotFoundError(words);
    case 407:
      return absl::PermissionDeniedError(
          "the proxy answers 407: it wants to know a user and a password");
    case 412:
      return absl::AlreadyExistsError("exists already");
    default:
      break;
  }
  return response.status >= 500 ? absl::UnavailableError(words)
                                : absl::FailedPreconditionError(words);
}

bool succeeded(const Response& response) {
  return response.status / 100 == 2;
}

std::string textOf(const ObjectName& name) {
  return fmt::format("{}{}/{}", kObjectScheme, name.bucket, name.key);
}

Status about(const ObjectName& name, const Status& status) {
  return annotate(status, textOf(name));
}

// The object's size, of "bytes 0-99/1234".
std::optional<std::uint64_t> sizeIn(const std::string& content_range) {
  return parseNumber<std::uint64_t>(splitFirst(content_range, '/').second);
}

std::string headerOf(const Response& response, const std::string& name) {
  const auto found = response.headers.find(name);
  return found == response.headers.end() ? "" : found->second;
}

std::uint64_t randomSeed() {
  std::uint64_t seed = 0;
  const std::string text = randomHex(8);
  std::from_chars(text.data(), text.data() + text.size(), seed, 16);
  return seed;
}

}  // namespace

std::optional<Duration> delayBeforeRetry(int failures, Duration spent, double unit) {
  const Duration longest = std::min(kMostDelay, kFirstDelay * (1 << std::min(failures - 1, 10)));
  const Duration delay = longest / 2 + fromSeconds(toSeconds(longest) / 2 * unit);
  if (spent + delay > kPatience) return std::nullopt;
  return delay;
}

Client::Client(S3Config config, std::unique_ptr<Http> http, Surroundings surroundings)
    : config_(std::move(config)),
      http_(std::move(http)),
      surroundings_(std::move(surroundings)),
      keys_(config_.keys, *http_, surroundings_.clock),
      rng_(randomSeed()) {}

double Client::unit() {
  const std::lock_guard lock(mutex_);
  return rng_.unit();
}

Request Client::request(std::string method, const ObjectName& name) const {
  const ObjectUrl url = urlOf(config_, name);
  Request request;
  request.method = std::move(method);
  request.scheme_and_host = url.scheme_and_host;
  request.host = url.host;
  request.path = url.path;
  return request;
}

// Signed anew each time: a signature is good for some minutes. Lent keys may end before their time:
// who lends them has begun anew, or clocks differ.
StatusOr<Response> Client::sendOnce(const Request& request, std::size_t max_body) {
  for (bool again = false;; again = true) {
    TY_ASSIGN_OR_RETURN(const Keys keys, keys_.current());
    Request to_send = request;
    sign(keys, config_.region, surroundings_.clock.unixMillis(), to_send);
    StatusOr<Response> response = http_->send(to_send, max_body);
    if (again || !response.ok() || !areOver(*response) || !keys_.drop(keys)) return response;
  }
}

StatusOr<Client::Answer> Client::send(const ObjectName& name, Request request,
                                      std::size_t max_body) {
  const TimePoint began = surroundings_.clock.now();
  for (int failures = 0;; ++failures) {
    StatusOr<Response> response = sendOnce(request, max_body);
    if (response.ok() && !passes(response)) return Answer{*std::move(response), failures > 0};
    const Status status = response.ok() ? refusal(*response) : response.status();
    const auto delay =
        passes(response) ? delayBeforeRetry(failures + 1, surroundings_.clock.now() - began, unit())
                         : std::nullopt;
    if (!delay) return about(name, status);
    surroundings_.pause(*delay);
  }
}

StatusOr<ObjectPart> Client::get(const ObjectName& name, std::uint64_t offset, std::size_t length,
                                 const std::string& tag) {
  Request wanted = request("GET", name);
  wanted.headers["range"] =
      fmt::format("bytes={}-{}", offset, offset + std::max<std::size_t>(length, 1) - 1);
  if (!tag.empty()) wanted.headers["if-match"] = tag;
  TY_ASSIGN_OR_RETURN(Answer answer, send(name, std::move(wanted), std::max(length, kMostWords)));
  Response& response = answer.response;
  ObjectPart part{.bytes = {}, .size = 0, .tag = headerOf(response, "etag")};
  if (response.status == 412) return about(name, absl::DataLossError("changes while it is read"));
  if (response.status == 416) {  // it ends before, or is empty
    part.size = sizeIn(headerOf(response, "content-range")).value_or(0);
    return part;
  }
  if (!succeeded(response)) return about(name, refusal(response));
  const auto size = sizeIn(headerOf(response, "content-range"));
  part.size = size.value_or(response.body.size());
  const std::uint64_t there =
      offset < part.size ? std::min<std::uint64_t>(length, part.size - offset) : 0;
  part.bytes = std::move(response.body);
  if (!size && offset > 0) return about(name, absl::InternalError("the store knows no ranges"));
  if (part.bytes.size() > there) part.bytes.resize(there);
  if (part.bytes.size() < there) {
    return about(name,
                 absl::DataLossError(fmt::format("{} bytes of {} came", part.bytes.size(), there)));
  }
  return part;
}

// Of ours, when the answer to an earlier try was lost.
bool Client::holds(const ObjectName& name, std::span<const std::byte> body) {
  const StatusOr<ObjectPart> there = get(name, 0, body.size() + 1);
  return there.ok() && std::ranges::equal(std::as_bytes(std::span(there->bytes)), body);
}

Status Client::put(const ObjectName& name, std::span<const std::byte> body, bool exclusively) {
  Request wanted = request("PUT", name);
  wanted.body = body;
  if (exclusively) wanted.headers["if-none-match"] = "*";
  TY_ASSIGN_OR_RETURN(const Answer answer, send(name, std::move(wanted), kMostWords));
  if (succeeded(answer.response)) return absl::OkStatus();
  if (answer.response.status == 412 && answer.repeated && holds(name, body))
    return absl::OkStatus();
  return about(name, refusal(answer.response));
}

StatusOr<std::vector<StoredFile>> Client::list(const std::string& bucket,
                                               const std::string& prefix) {
  std::vector<StoredFile> files;
  std::string next;
  do {
    Request wanted = request("GET", {bucket, ""});
    wanted.query = {{"list-type", "2"}, {"delimiter", "/"}, {"prefix", prefix}};
    if (!next.empty()) wanted.query["continuation-token"] = next;
    const ObjectName name{bucket, prefix};
    TY_ASSIGN_OR_RETURN(const Answer answer, send(name, std::move(wanted), kMostListing));
    if (!succeeded(answer.response)) return about(name, refusal(answer.response));
    StatusOr<Listing> listing = parseListing(answer.response.body);
    if (!listing.ok()) return about(name, listing.status());
    for (StoredFile& file : listing->files) {
      file.name.erase(0, prefix.size());
      if (!file.name.empty()) files.push_back(std::move(file));
    }
    next = listing->next;
  } while (!next.empty());
  return files;
}

Status Client::remove(const ObjectName& name) {
  TY_ASSIGN_OR_RETURN(const Answer answer, send(name, request("DELETE", name), kMostWords));
  if (succeeded(answer.response) || answer.response.status == 404) return absl::OkStatus();
  return about(name, refusal(answer.response));
}

StatusOr<std::string> Client::beginUpload(const ObjectName& name) {
  Request wanted = request("POST", name);
  wanted.query["uploads"] = "";
  TY_ASSIGN_OR_RETURN(const Answer answer, send(name, std::move(wanted), kMostWords));
  if (!succeeded(answer.response)) return about(name, refusal(answer.response));
  StatusOr<std::string> upload = parseUploadId(answer.response.body);
  return upload.ok() ? upload : about(name, upload.status());
}

StatusOr<std::string> Client::uploadPart(const ObjectName& name, const std::string& upload,
                                         int number, std::span<const std::byte> body) {
  Request wanted = request("PUT", name);
  wanted.query = {{"partNumber", std::to_string(number)}, {"uploadId", upload}};
  wanted.body = body;
  TY_ASSIGN_OR_RETURN(const Answer answer, send(name, std::move(wanted), kMostWords));
  std::string tag = headerOf(answer.response, "etag");
  if (!succeeded(answer.response)) return about(name, refusal(answer.response));
  if (tag.empty()) return about(name, absl::InternalError("a part got no tag"));
  return tag;
}

Status Client::completeUpload(const ObjectName& name, const std::string& upload,
                              const std::vector<std::string>& tags, bool exclusively) {
  const std::string text = completeText(tags);
  Request wanted = request("POST", name);
  wanted.query["uploadId"] = upload;
  wanted.body = std::as_bytes(std::span(text.data(), text.size()));
  if (exclusively) wanted.headers["if-none-match"] = "*";
  TY_ASSIGN_OR_RETURN(const Answer answer, send(name, std::move(wanted), kMostWords));
  const ErrorAnswer error = parseError(answer.response.body);
  if (succeeded(answer.response) && error.code.empty()) return absl::OkStatus();
  // An earlier try has completed it, of which the upload is gone now.
  if (answer.repeated && error.code == "NoSuchUpload" && get(name, 0, 1).ok())
    return absl::OkStatus();
  if (succeeded(answer.response)) {
    return about(name, absl::UnavailableError(fmt::format("{}: {}", error.code, error.message)));
  }
  return about(name, refusal(answer.response));
}

void Client::abortUpload(const ObjectName& name, const std::string& upload) {
  Request wanted = request("DELETE", name);
  wanted.query["uploadId"] = upload;
  static_cast<void>(sendOnce(wanted, kMostWords));
}

}  // namespace trainyard::runtime::s3
