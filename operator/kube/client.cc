#include "operator/kube/client.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/core/strings.h"
#include "base/json/members.h"
#include "fmt/format.h"
#include "operator/kube/failure.h"
#include "operator/kube/lines.h"

namespace trainyard::control {

namespace {

using Json = nlohmann::json;
using internal::fromKubeStatus;
using internal::fromResponse;
using internal::Verb;

// The apiserver bounds a request to 3 MiB; an object in a watch is larger by little.
constexpr std::size_t kMaxLine = std::size_t{16} << 20;
constexpr std::size_t kMaxError = std::size_t{1} << 20;
// A server that says "at once" is not asked without a pause: so long the first time, twice as long
// each further one.
constexpr Duration kLeastWait = std::chrono::milliseconds(50);
// What a server may take beyond the time for which a watch was asked.
constexpr Duration kWatchGrace = std::chrono::seconds(15);

std::string percentEncode(std::string_view text) {
  static constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string result;
  for (const char c : text) {
    if (kPlain.find(c) != std::string_view::npos) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

class Query {
 public:
  Query& add(std::string_view name, std::string_view value) {
    if (value.empty()) return *this;
    text_ += fmt::format("{}{}={}", text_.empty() ? "?" : "&", name, percentEncode(value));
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Query queryOf(const ListQuery& query) {
  Query result;
  result.add("labelSelector", query.label_selector).add("fieldSelector", query.field_selector);
  return result;
}

Verb verbOf(std::string_view method) {
  if (method == "GET") return Verb::kRead;
  return method == "POST" ? Verb::kCreate : Verb::kWrite;
}

// False when `stop` came first.
bool waitFor(Duration time, const Clock& clock, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_until(lock, stop, clock.now() + time, [] { return false; });
  return !stop.stop_requested();
}

// "" where there is none.
std::string metadataOf(const Json& object, std::string_view key) {
  return textAt(member(object, "metadata"), key);
}

std::string nameOf(const Json& object) {
  return metadataOf(object, "name");
}

// Bytes that are no UTF-8 are replaced; JSON cannot carry them.
std::string toText(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string describe(std::string_view verb, const KubeResource& resource, std::string_view ns,
                     std::string_view name) {
  return fmt::format("{} {}{}{}{}{}", verb, resource.plural, ns.empty() && name.empty() ? "" : " ",
                     ns, ns.empty() || name.empty() ? "" : "/", name);
}

void setKind(const KubeResource& resource, Json& object) {
  object["apiVersion"] = resource.group.empty()
                             ? std::string(resource.version)
                             : fmt::format("{}/{}", resource.group, resource.version);
  object["kind"] = std::string(resource.kind);
}

StatusOr<WatchEvent> parseEvent(std::string_view line) {
  Json event = Json::parse(line, nullptr, false);
  if (!event.is_object() || !event["type"].is_string() || !event["object"].is_object()) {
    return absl::InternalError(fmt::format("no watch event: {}", line.substr(0, 200)));
  }
  const std::string type = event["type"].get<std::string>();
  WatchEvent result;
  result.object = std::move(event["object"]);
  if (type == "ADDED") {
    result.type = WatchEvent::Type::kAdded;
  } else if (type == "MODIFIED") {
    result.type = WatchEvent::Type::kModified;
  } else if (type == "DELETED") {
    result.type = WatchEvent::Type::kDeleted;
  } else if (type == "BOOKMARK") {
    result.type = WatchEvent::Type::kBookmark;
  } else if (type == "ERROR") {
    return fromKubeStatus(result.object, 0, Verb::kRead);
  } else {
    return absl::InternalError(fmt::format("unknown watch event '{}'", type));
  }
  return result;
}

}  // namespace

KubeClient::KubeClient(HttpTransport& transport, const Clock& clock, KubeClientOptions options)
    : transport_(transport), clock_(clock), options_(std::move(options)) {}

KubeClient KubeClient::with(HttpLimits limits) const {
  KubeClientOptions options = options_;
  options.limits = std::move(limits);
  return {transport_, clock_, std::move(options)};
}

HttpRequest KubeClient::request(std::string method, std::string target) const {
  return {std::move(method),
          std::move(target),
          {{"Accept", "application/json"}, {"User-Agent", options_.user_agent}},
          {}};
}

StatusOr<HttpResponse> KubeClient::send(const HttpRequest& request) {
  Duration waited{};
  Duration least = kLeastWait;
  for (;;) {
    if (request.method != "GET" && !options_.may_write()) {
      return absl::UnavailableError("not the leader: nothing is written");
    }
    auto response = transport_.call(request, options_.limits);
    if (!response.ok()) return response;
    const Status status = fromResponse(*response, verbOf(request.method));
    if (status.ok()) return response;
    const auto wait = retryAfter(status);
    // A server that says so has not begun.
    if (!wait || !(response->status == 429 || response->status == 503)) return status;
    const Duration pause = std::max(*wait, least);
    least *= 2;
    waited += pause;
    if (waited > options_.max_wait || !waitFor(pause, clock_, options_.limits.stop)) return status;
  }
}

StatusOr<Json> KubeClient::sendJson(const HttpRequest& request, std::string_view what) {
  const auto response = send(request);
  if (!response.ok()) return annotate(response.status(), what);
  Json body = Json::parse(response->body, nullptr, false);
  if (!body.is_object()) {
    return markMaybeHappened(absl::InternalError(
        fmt::format("{}: expected a JSON object, got '{}'", what, response->body.substr(0, 100))));
  }
  return body;
}

StatusOr<Json> KubeClient::get(const KubeResource& resource, std::string_view ns,
                               std::string_view name) {
  const std::string what = describe("get", resource, ns, name);
  if (name.empty()) return absl::InvalidArgumentError(what + ": no name");
  return sendJson(request("GET", resourcePath(resource, ns, name, "")), what);
}

StatusOr<ListPage> KubeClient::listPage(const KubeResource& resource, const ListQuery& query,
                                        int limit, std::string_view continue_token) {
  const std::string what = describe("list", resource, query.ns, "");
  Query parameters = queryOf(query);
  if (limit > 0) parameters.add("limit", std::to_string(limit));
  parameters.add("continue", continue_token);
  TY_ASSIGN_OR_RETURN(
      Json body,
      sendJson(request("GET", resourcePath(resource, query.ns, "", "") + parameters.text()), what));
  ListPage page;
  page.resource_version = metadataOf(body, "resourceVersion");
  page.continue_token = metadataOf(body, "continue");
  Json& items = body["items"];
  if (items.is_null()) return page;  // how Go writes an empty list
  if (!items.is_array()) return absl::InternalError(what + ": expected a list of items");
  page.items.reserve(items.size());
  for (Json& item : items) page.items.push_back(std::move(item));
  return page;
}

StatusOr<ListPage> KubeClient::list(const KubeResource& resource, const ListQuery& query) {
  constexpr int kPage = 500;
  ListPage all;
  std::string token;
  do {
    auto page = listPage(resource, query, kPage, token);
    if (!token.empty() && page.status().code() == absl::StatusCode::kOutOfRange) {
      return listPage(resource, query, 0, "");
    }
    TY_RETURN_IF_ERROR(page.status());
    for (Json& item : page->items) all.items.push_back(std::move(item));
    all.resource_version = page->resource_version;
    token = page->continue_token;
  } while (!token.empty());
  return all;
}

StatusOr<Json> KubeClient::create(const KubeResource& resource, std::string_view ns, Json object,
                                  UnknownFields unknown) {
  const std::string what = describe("create", resource, ns, nameOf(object));
  setKind(resource, object);
  const char* query = unknown == UnknownFields::kStrict ? "?fieldValidation=Strict" : "";
  HttpRequest post = request("POST", resourcePath(resource, ns, "", "") + query);
  post.headers.emplace_back("Content-Type", "application/json");
  post.body = toText(object);
  return sendJson(post, what);
}

StatusOr<Json> KubeClient::write(const KubeResource& resource, std::string_view ns, Json object,
                                 std::string_view subresource) {
  const std::string name = nameOf(object);
  const std::string what =
      describe(subresource.empty() ? "update" : fmt::format("update {} of", subresource), resource,
               ns, name);
  if (name.empty()) return absl::InvalidArgumentError(what + ": no name");
  setKind(resource, object);
  HttpRequest put = request("PUT", resourcePath(resource, ns, name, subresource));
  put.headers.emplace_back("Content-Type", "application/json");
  put.body = toText(object);
  return sendJson(put, what);
}

StatusOr<Json> KubeClient::update(const KubeResource& resource, std::string_view ns, Json object) {
  return write(resource, ns, std::move(object), "");
}

StatusOr<Json> KubeClient::updateStatus(const KubeResource& resource, std::string_view ns,
                                        Json object) {
  return write(resource, ns, std::move(object), "status");
}

StatusOr<Json> KubeClient::patchMerge(const KubeResource& resource, std::string_view ns,
                                      std::string_view name, const Json& patch,
                                      std::string_view subresource) {
  const std::string what = describe(
      subresource.empty() ? "patch" : fmt::format("patch {} of", subresource), resource, ns, name);
  if (name.empty()) return absl::InvalidArgumentError(what + ": no name");
  HttpRequest http = request("PATCH", resourcePath(resource, ns, name, subresource));
  http.headers.emplace_back("Content-Type", "application/merge-patch+json");
  http.body = toText(patch);
  return sendJson(http, what);
}

StatusOr<Json> KubeClient::apply(const KubeResource& resource, std::string_view ns, Json object,
                                 const ApplyOptions& options) {
  const std::string name = nameOf(object);
  const std::string what = describe("apply", resource, ns, name);
  if (name.empty()) return absl::InvalidArgumentError(what + ": no name");
  setKind(resource, object);
  Query parameters;
  parameters.add("fieldManager", options.field_manager)
      .add("force", options.force ? "true" : "")
      .add("fieldValidation", "Strict")
      .add("dryRun", options.dry_run ? "All" : "");
  HttpRequest patch = request("PATCH", resourcePath(resource, ns, name, "") + parameters.text());
  // YAML holds JSON.
  patch.headers.emplace_back("Content-Type", "application/apply-patch+yaml");
  patch.body = toText(object);
  return sendJson(patch, what);
}

StatusOr<Json> KubeClient::remove(const KubeResource& resource, std::string_view ns,
                                  std::string_view name, const DeleteQuery& query) {
  const std::string what = describe("delete", resource, ns, name);
  if (name.empty()) return absl::InvalidArgumentError(what + ": no name");
  Json options{{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  if (!query.uid.empty()) options["preconditions"]["uid"] = query.uid;
  if (!query.resource_version.empty()) {
    options["preconditions"]["resourceVersion"] = query.resource_version;
  }
  if (query.grace_seconds) options["gracePeriodSeconds"] = *query.grace_seconds;
  if (!query.propagation.empty()) options["propagationPolicy"] = query.propagation;
  HttpRequest http = request("DELETE", resourcePath(resource, ns, name, ""));
  http.headers.emplace_back("Content-Type", "application/json");
  http.body = toText(options);
  return sendJson(http, what);
}

Status KubeClient::watch(const KubeResource& resource, const ListQuery& query,
                         const WatchRequest& watched,
                         const std::function<bool(WatchEvent)>& on_event) {
  const std::string what = describe("watch", resource, query.ns, "");
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(watched.timeout);
  Query parameters = queryOf(query);
  parameters.add("watch", "true")
      .add("allowWatchBookmarks", "true")
      .add("resourceVersion", watched.resource_version)
      .add("timeoutSeconds", std::to_string(seconds.count()));
  if (watched.initial_events) {
    parameters.add("sendInitialEvents", "true").add("resourceVersionMatch", "NotOlderThan");
  }
  HttpLimits limits = options_.limits;
  limits.deadline = watched.timeout + kWatchGrace;
  limits.inactivity = options_.watch_silence;
  limits.stop = watched.stop;

  const Status streamed =
      streamLines(request("GET", resourcePath(resource, query.ns, "", "") + parameters.text()),
                  limits, [&](std::string_view line) -> StatusOr<bool> {
                    TY_ASSIGN_OR_RETURN(WatchEvent event, parseEvent(line));
                    return on_event(std::move(event));
                  });
  return annotate(streamed, what);
}

Status KubeClient::streamLines(const HttpRequest& request, const HttpLimits& limits,
                               const std::function<StatusOr<bool>(std::string_view)>& on_line,
                               std::string* rest) {
  HttpResponse head;
  Status failure;
  internal::LineSplitter lines(kMaxLine);
  bool wanted = true;
  const auto take = [&](std::string_view line) -> Status {
    if (!wanted) return absl::OkStatus();
    TY_ASSIGN_OR_RETURN(wanted, on_line(line));
    return absl::OkStatus();
  };
  const Status streamed = transport_.stream(
      request, limits,
      [&](const HttpResponse& response) {
        head = response;
        return true;
      },
      [&](std::string_view data) {
        if (head.status == 200) {
          failure = lines.push(data, take);
        } else {
          head.body += data;
        }
        return failure.ok() && wanted && head.body.size() < kMaxError;
      });
  if (rest != nullptr) *rest = lines.rest();
  TY_RETURN_IF_ERROR(failure);
  TY_RETURN_IF_ERROR(streamed);
  return fromResponse(head, Verb::kRead);
}

Status KubeClient::podLog(std::string_view ns, std::string_view pod, const PodLogQuery& query,
                          const std::function<bool(std::string_view)>& on_line) {
  Query parameters;
  parameters.add("container", query.container)
      .add("follow", query.follow ? "true" : "")
      .add("tailLines", query.tail ? std::to_string(*query.tail) : "")
      .add("sinceTime", query.since)
      .add("timestamps", "true");
  const HttpRequest get = request("GET", resourcePath(kPods, ns, pod, "log") + parameters.text());
  std::string rest;
  bool wanted = true;
  const Status read = streamLines(
      get, options_.limits,
      [&](std::string_view line) -> StatusOr<bool> { return wanted = on_line(line); }, &rest);
  // A log that is over may end without an end of its last line.
  if (read.ok() && wanted && !rest.empty()) on_line(rest);
  return annotate(read, describe("log of", kPods, ns, pod));
}

StatusOr<std::string> KubeClient::getRaw(std::string_view target) {
  HttpRequest http = request("GET", std::string(target));
  http.headers[0].second = "*/*";
  TY_ASSIGN_OR_RETURN(HttpResponse response, send(http));
  return std::move(response.body);
}

std::string resourcePath(const KubeResource& resource, std::string_view ns, std::string_view name,
                         std::string_view subresource) {
  std::string path = resource.group.empty()
                         ? fmt::format("/api/{}", resource.version)
                         : fmt::format("/apis/{}/{}", resource.group, resource.version);
  if (!ns.empty()) path += "/namespaces/" + percentEncode(ns);
  path += fmt::format("/{}", resource.plural);
  if (!name.empty()) path += "/" + percentEncode(name);
  if (!subresource.empty()) path += fmt::format("/{}", subresource);
  return path;
}

namespace {

class ClientListWatch : public ListWatch {
 public:
  ClientListWatch(KubeClient& client, const KubeResource& resource, ListQuery query)
      : client_(client), resource_(resource), query_(std::move(query)) {}

  StatusOr<ListPage> list(int limit, std::string_view continue_token,
                          std::stop_token stop) override {
    HttpLimits limits = client_.options().limits;
    limits.stop = std::move(stop);
    return client_.with(std::move(limits)).listPage(resource_, query_, limit, continue_token);
  }
  Status watch(const WatchRequest& request,
               const std::function<bool(WatchEvent)>& on_event) override {
    return client_.watch(resource_, query_, request, on_event);
  }
  Duration retryAfter(const Status& failure) const override {
    return control::retryAfter(failure).value_or(Duration::zero());
  }

 private:
  KubeClient& client_;
  const KubeResource resource_;
  const ListQuery query_;
};

}  // namespace

std::unique_ptr<ListWatch> makeListWatch(KubeClient& client, const KubeResource& resource,
                                         ListQuery query) {
  return std::make_unique<ClientListWatch>(client, resource, std::move(query));
}

}  // namespace trainyard::control
