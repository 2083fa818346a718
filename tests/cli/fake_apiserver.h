// An apiserver within the test, with one job, and what a test needs to ask it as the CLI does.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/core/strings.h"
#include "cli/kube/cluster_jobs.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "operator/kube/client.h"

namespace trainyard::cli {

using control::HttpLimits;
using control::HttpRequest;
using control::HttpResponse;
using Json = nlohmann::json;

inline constexpr char kJobPath[] =
    "/apis/trainyard.dev/v1alpha1/namespaces/lab/trainingjobs/fashion";
inline constexpr char kPodsPath[] = "/api/v1/namespaces/lab/pods";

inline Json sampleJob() {
  return Json::parse(R"({
    "apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "fashion", "namespace": "lab", "uid": "u1", "generation": 1,
                 "resourceVersion": "7", "creationTimestamp": "2023-11-14T22:08:15Z",
                 "managedFields": [{"manager": "trainyard"}]},
    "spec": {"strategy": "ParameterServer", "ps": {"replicas": 1}, "worker": {"replicas": 2},
             "training": {"model": {"name": "mlp"}, "steps": 700}, "newerField": 1},
    "status": {"state": "Running", "observedGeneration": 1,
               "ps": {"ready": 1}, "worker": {"ready": 2, "desired": 2}, "restarts": 1,
               "checkpoint": {"step": 112, "durable": true, "time": "2023-11-14T22:13:00Z"},
               "progress": {"step": 200, "steps": 700, "loss": "0.47414", "accuracy": "0.8106",
                            "examplesPerSecond": "1333"},
               "conditions": [{"type": "Running", "status": "True", "reason": "AllTasksReady",
                               "lastTransitionTime": "2023-11-14T22:12:20Z", "message": "3 of 3"}]}
  })");
}

inline Json pod(const std::string& task, const std::string& status, const std::string& uid = "") {
  const auto [role, index] = splitFirst(task, '-');
  Json json = Json::parse(R"({"metadata": {
      "creationTimestamp": "2023-11-14T22:12:20Z",
      "annotations": {"trainyard.dev/task-container": "task"},
      "ownerReferences": [{"controller": true, "uid": "u1"}]},
    "spec": {"nodeName": "node-1"}})");
  json["metadata"]["name"] = "fashion-" + task;
  json["metadata"]["uid"] = uid.empty() ? "pod-" + task : uid;
  json["metadata"]["labels"] = {
      {"trainyard.dev/role", role}, {"trainyard.dev/index", index}, {"trainyard.dev/created", "1"}};
  json["status"] = Json::parse(status);
  return json;
}

inline constexpr char kReady[] = R"({"phase": "Running", "containerStatuses": [
    {"name": "task", "ready": true, "state": {"running": {}}}]})";
inline constexpr char kKilled[] = R"({"phase": "Failed", "containerStatuses": [
    {"name": "task", "state": {"terminated": {"exitCode": 137}}}]})";
inline constexpr char kDone[] = R"({"phase": "Succeeded", "containerStatuses": [
    {"name": "task", "state": {"terminated": {"exitCode": 0}}}]})";

// Answers by "METHOD path", without the query; the newest handler counts. With the header X-Broken
// a stream ends with a failure, with X-Forgotten never by itself.
class FakeApiserver : public control::HttpTransport {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  void on(const std::string& what, Handler handler) {
    const std::lock_guard lock(mutex_);
    handlers_[what] = std::move(handler);
  }
  void answer(const std::string& what, const Json& body, int status = 200) {
    on(what, [=](const HttpRequest&) { return HttpResponse{status, {}, body.dump()}; });
  }
  void refuse(const std::string& what, int status, const std::string& reason,
              const std::string& message) {
    answer(what, {{"kind", "Status"}, {"reason", reason}, {"message", message}}, status);
  }
  // The requests so far whose text begins with `what`.
  std::vector<HttpRequest> requests(const std::string& what) const {
    const std::lock_guard lock(mutex_);
    std::vector<HttpRequest> found;
    for (const HttpRequest& request : requests_) {
      if ((request.method + " " + request.target).starts_with(what)) found.push_back(request);
    }
    return found;
  }

  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits&) override {
    Handler handler;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      const auto found =
          handlers_.find(request.method + " " + std::string(splitFirst(request.target, '?').first));
      if (found == handlers_.end()) return HttpResponse{404, {}, "404 page not found"};
      handler = found->second;
    }
    return handler(request);
  }
  Status stream(const HttpRequest& request, const HttpLimits& limits,
                const std::function<bool(const HttpResponse&)>& on_head,
                const std::function<bool(std::string_view)>& on_data) override {
    TY_ASSIGN_OR_RETURN(HttpResponse response, call(request, limits));
    const std::string body = std::exchange(response.body, "");
    // Cut anywhere.
    const std::size_t half = body.size() / 2;
    if (on_head(response) && on_data(body.substr(0, half))) on_data(body.substr(half));
    if (!response.header("X-Forgotten").empty()) return waitToBeStopped(limits.stop);
    const bool broken = !response.header("X-Broken").empty();
    return broken ? absl::UnavailableError("connection lost") : absl::OkStatus();
  }

 private:
  static Status waitToBeStopped(const std::stop_token& stop) {
    absl::Notification stopped;
    const std::stop_callback told(stop, [&] { stopped.Notify(); });
    const bool in_time = stopped.WaitForNotificationWithTimeout(absl::Seconds(60));
    return in_time ? absl::CancelledError("stopped") : absl::InternalError("was never stopped");
  }

  mutable std::mutex mutex_;
  std::map<std::string, Handler> handlers_;
  std::vector<HttpRequest> requests_;
};

class FakeClusterTest : public testing::Test {
 protected:
  FakeClusterTest()
      : client_(std::make_shared<control::KubeClient>(server_, systemClock())),
        jobs_(makeClusterJobs(client_, systemClock(), {"lab", false, "https://here"})) {
    put(sampleJob());
  }
  void put(const Json& job) {
    const std::lock_guard lock(mutex_);
    job_ = job;
    server_.on(std::string("GET ") + kJobPath, [this](const HttpRequest&) {
      const std::lock_guard inner(mutex_);
      return HttpResponse{200, {}, job_.dump()};
    });
  }
  void change(const std::function<void(Json&)>& how) {
    const std::lock_guard lock(mutex_);
    how(job_);
  }
  void putPods(const std::vector<Json>& pods) {
    server_.answer(std::string("GET ") + kPodsPath, {{"kind", "PodList"}, {"items", pods}});
  }
  static std::string textOf(const Status& status) { return std::string(status.message()); }
  Json sent(const std::string& what) const {
    const auto requests = server_.requests(what);
    return requests.empty() ? Json() : Json::parse(requests.back().body);
  }

  FakeApiserver server_;
  std::mutex mutex_;
  Json job_;
  const std::shared_ptr<control::KubeClient> client_;
  const std::unique_ptr<JobSource> jobs_;
  const Waiting waiting_{true, std::chrono::seconds(60)};
};

}  // namespace trainyard::cli
