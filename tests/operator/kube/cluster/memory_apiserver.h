// An apiserver in memory, behind an HttpTransport: lists, watches, conditional writes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "operator/kube/http.h"

namespace trainyard::control {

// Objects go by their path, "/api/v1/namespaces/lab/pods/one". Thread-safe. Label selectors are not
// heeded: a test puts into a collection only what is asked for.
class MemoryApiserver : public HttpTransport {
 public:
  using Json = nlohmann::json;
  // Asked before each call; an answer is given instead of the server's own.
  using Refuse = std::function<std::optional<HttpResponse>(const HttpRequest&)>;

  void put(const std::string& path, Json object);
  void remove(const std::string& path);
  std::optional<Json> get(const std::string& path) const;
  void refuse(Refuse refuse);
  static HttpResponse failure(int code, const std::string& reason);
  // The next write has a version above `version`. Lower than before: as after a restore from a
  // backup, watches end, and those who ask for what is yet to come are told so.
  void setVersion(std::uint64_t version);
  // "METHOD path", oldest first, of all calls but lists and watches.
  std::vector<std::string> calls() const;

  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits& limits) override;
  Status stream(const HttpRequest& request, const HttpLimits& limits,
                const std::function<bool(const HttpResponse&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) override;

 private:
  struct Event {
    std::string collection;
    std::uint64_t version;
    std::string line;
  };
  HttpResponse answerLocked(const HttpRequest& request, const std::string& path);
  HttpResponse patchLocked(const std::string& path, const Json& patch);
  void storeLocked(const std::string& path, Json object, const char* type);

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, Json> objects_;
  std::vector<Event> events_;
  std::uint64_t version_ = 1;
  std::uint64_t restores_ = 0;
  Refuse refuse_;
  std::vector<std::string> calls_;
};

}  // namespace trainyard::control
