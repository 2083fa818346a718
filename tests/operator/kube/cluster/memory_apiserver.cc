#include "tests/operator/kube/cluster/memory_apiserver.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/core/strings.h"
#include "operator/cache/object_store.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::json;

HttpResponse reply(int status, const Json& body) {
  HttpResponse response;
  response.status = status;
  response.body = body.dump();
  return response;
}

std::string collectionOf(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// "/.../namespaces/NAMESPACE/PLURAL"
bool isCollection(const std::string& path) {
  constexpr std::string_view kNamespaces = "/namespaces/";
  const std::string rest = path.substr(path.find(kNamespaces) + kNamespaces.size());
  return std::count(rest.begin(), rest.end(), '/') == 1;
}

// The value of a query's parameter; 0 where there is none.
std::uint64_t numberIn(const std::string& target, const std::string& name) {
  const std::size_t at = target.find(name + "=");
  if (at == std::string::npos) return 0;
  const std::string rest = target.substr(at + name.size() + 1);
  return parseResourceVersion(rest.substr(0, rest.find('&')));
}

}  // namespace

HttpResponse MemoryApiserver::failure(int code, const std::string& reason) {
  return reply(code, {{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", reason}});
}

void MemoryApiserver::storeLocked(const std::string& path, Json object, const char* type) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  events_.push_back(
      {collectionOf(path), version_, Json{{"type", type}, {"object", object}}.dump() + "\n"});
  objects_[path] = std::move(object);
  changed_.notify_all();
}

void MemoryApiserver::put(const std::string& path, Json object) {
  const std::lock_guard lock(mutex_);
  storeLocked(path, std::move(object), objects_.contains(path) ? "MODIFIED" : "ADDED");
}

void MemoryApiserver::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(path);
  if (found == objects_.end()) return;
  storeLocked(path, Json(found->second), "DELETED");
  objects_.erase(path);
}

std::optional<Json> MemoryApiserver::get(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(path);
  return found == objects_.end() ? std::nullopt : std::optional<Json>(found->second);
}

void MemoryApiserver::refuse(Refuse refuse) {
  const std::lock_guard lock(mutex_);
  refuse_ = std::move(refuse);
}

void MemoryApiserver::setVersion(std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  if (version < version_) {
    ++restores_;
    for (auto& [path, object] : objects_) {
      object["metadata"]["resourceVersion"] = std::to_string(version);
    }
  }
  version_ = version;
  events_.clear();
  changed_.notify_all();
}

std::vector<std::string> MemoryApiserver::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

HttpResponse MemoryApiserver::patchLocked(const std::string& path, const Json& patch) {
  Json object = objects_.at(path);
  const Json given = patch.value("metadata", Json::object());
  for (const char* key : {"resourceVersion", "uid"}) {
    if (given.contains(key) && given[key] != object["metadata"].value(key, Json())) {
      return failure(409, "Conflict");
    }
  }
  object.merge_patch(patch);
  storeLocked(path, object, "MODIFIED");
  return reply(200, objects_.at(path));
}

HttpResponse MemoryApiserver::answerLocked(const HttpRequest& request, const std::string& path) {
  if (request.method == "POST") {
    Json object = Json::parse(request.body);
    const std::string place = path + "/" + objectKey(object).name;
    if (objects_.contains(place)) return failure(409, "AlreadyExists");
    if (!object["metadata"].contains("uid")) object["metadata"]["uid"] = place;
    storeLocked(place, std::move(object), "ADDED");
    return reply(201, objects_.at(place));
  }
  // Of a subresource the object is changed.
  const bool is_status = path.ends_with("/status");
  const std::string place = is_status ? collectionOf(path) : path;
  const auto found = objects_.find(place);
  if (request.method == "GET" && found == objects_.end()) {
    Json items = Json::array();
    for (const auto& [other, object] : objects_) {
      if (collectionOf(other) == path) items.push_back(object);
    }
    if (!isCollection(path)) return failure(404, "NotFound");
    return reply(200,
                 {{"metadata", {{"resourceVersion", std::to_string(version_)}}}, {"items", items}});
  }
  if (found == objects_.end()) return failure(404, "NotFound");
  if (request.method == "GET") return reply(200, found->second);
  if (request.method == "PATCH") return patchLocked(place, Json::parse(request.body));
  const Json gone = found->second;
  storeLocked(place, gone, "DELETED");
  objects_.erase(place);
  return reply(200, gone);
}

StatusOr<HttpResponse> MemoryApiserver::call(const HttpRequest& request, const HttpLimits&) {
  const std::string path(splitFirst(request.target, '?').first);
  Refuse refuse;
  {
    const std::lock_guard lock(mutex_);
    refuse = refuse_;
  }
  const auto refused = refuse ? refuse(request) : std::nullopt;
  const std::lock_guard lock(mutex_);
  if (request.method != "GET" || objects_.contains(path)) {
    calls_.push_back(request.method + " " + path);
  }
  return refused ? *refused : answerLocked(request, path);
}

Status MemoryApiserver::stream(const HttpRequest& request, const HttpLimits& limits,
                               const std::function<bool(const HttpResponse&)>& on_head,
                               const std::function<bool(std::string_view)>& on_data) {
  const std::string collection(splitFirst(request.target, '?').first);
  std::uint64_t version = numberIn(request.target, "resourceVersion");
  std::unique_lock lock(mutex_);
  const std::uint64_t restores = restores_;
  HttpResponse head;
  head.status = version > version_ ? 410 : 200;
  if (!on_head(head)) return absl::OkStatus();
  if (head.status == 410) {
    on_data(failure(410, "Expired").body);
    return absl::OkStatus();
  }
  while (!limits.stop.stop_requested() && restores == restores_) {
    std::vector<Event> news;
    for (const Event& event : events_) {
      if (event.collection == collection && event.version > version) news.push_back(event);
    }
    if (news.empty()) {
      changed_.wait_for(lock, limits.stop, std::chrono::milliseconds(50), [] { return false; });
      continue;
    }
    version = news.back().version;
    lock.unlock();
    for (const Event& event : news) {
      if (!on_data(event.line)) return absl::OkStatus();
    }
    lock.lock();
  }
  return limits.stop.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
}

}  // namespace trainyard::control
