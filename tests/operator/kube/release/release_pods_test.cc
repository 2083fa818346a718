#include "operator/kube/release_pods.h"

#include <map>
#include <mutex>
#include <utility>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace trainyard::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Pods behind GET and conditional PATCH, as an apiserver has them.
class Pods : public HttpTransport {
 public:
  void add(const std::string& ns, const std::string& name, const Json& finalizers) {
    pods_["/api/v1/namespaces/" + ns + "/pods/" + name] = {{"metadata",
                                                            {{"namespace", ns},
                                                             {"name", name},
                                                             {"uid", ns + name},
                                                             {"resourceVersion", "7"},
                                                             {"finalizers", finalizers}}}};
  }
  Json finalizers(const std::string& ns, const std::string& name) const {
    return pods_.at("/api/v1/namespaces/" + ns + "/pods/" + name)["metadata"]["finalizers"];
  }

  StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits&) override {
    const std::lock_guard lock(mutex_);
    const std::string path = request.target.substr(0, request.target.find('?'));
    if (request.method == "PATCH") return patch(path, Json::parse(request.body));
    if (const auto pod = pods_.find(path); pod != pods_.end()) return reply(200, pod->second);
    lists.push_back(request.target);
    Json items = Json::array();
    for (const auto& [place, pod] : pods_) items.push_back(pod);
    return reply(200, {{"metadata", {{"resourceVersion", "9"}}}, {"items", items}});
  }
  Status stream(const HttpRequest&, const HttpLimits&,
                const std::function<bool(const HttpResponse&)>&,
                const std::function<bool(std::string_view)>&) override {
    return absl::UnimplementedError("stream");
  }

  int conflicts = 0;       // so many patches meet a pod that the kubelet has just written to
  bool vanishing = false;  // pods are gone when they are written to
  std::string forbidden;   // the pod of this name may not be written
  std::vector<std::string> lists;

 private:
  static HttpResponse reply(int status, const Json& body) {
    HttpResponse response;
    response.status = status;
    response.headers = {{"Content-Type", "application/json"}};
    response.body = body.dump();
    return response;
  }
  static HttpResponse failure(int code, const std::string& reason) {
    return reply(code,
                 {{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", reason}});
  }

  StatusOr<HttpResponse> patch(const std::string& path, const Json& patch) {
    if (vanishing) pods_.erase(path);
    const auto found = pods_.find(path);
    if (found == pods_.end()) return failure(404, "NotFound");
    if (!forbidden.empty() && path.ends_with("/" + forbidden)) return failure(403, "Forbidden");
    Json& metadata = found->second["metadata"];
    if (conflicts-- > 0) metadata["resourceVersion"] = std::to_string(20 + conflicts);
    if (patch["metadata"]["resourceVersion"] != metadata["resourceVersion"] ||
        patch["metadata"]["uid"] != metadata["uid"]) {
      return failure(409, "Conflict");
    }
    metadata["finalizers"] = patch["metadata"]["finalizers"];
    return reply(200, found->second);
  }

  std::mutex mutex_;  // calls come side by side
  std::map<std::string, Json> pods_;
};

StatusOr<int> releaseAll(Pods& pods, const std::vector<std::string>& namespaces = {}) {
  KubeClient client(pods, systemClock());
  return releasePods(client, namespaces);
}

TEST(ReleasePods, TakesOffItsOwnFinalizerAndNoOther) {
  Pods pods;
  pods.add("a", "one", {"trainyard.dev/result", "example.com/other"});
  pods.add("b", "two", {"trainyard.dev/result"});
  pods.add("b", "three", Json::array());
  const StatusOr<int> count = releaseAll(pods);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 2);
  EXPECT_EQ(pods.finalizers("a", "one"), Json({"example.com/other"}));
  EXPECT_EQ(pods.finalizers("b", "two"), Json::array());
  EXPECT_EQ(releaseAll(pods).value(), 0);
}

TEST(ReleasePods, AsksForPodsOfJobsOnly) {
  Pods pods;
  ASSERT_TRUE(releaseAll(pods, {"team", "lab"}).ok());
  ASSERT_TRUE(releaseAll(pods).ok());
  EXPECT_THAT(pods.lists,
              ElementsAre(HasSubstr("/api/v1/namespaces/team/pods?"),
                          HasSubstr("/api/v1/namespaces/lab/pods?"), HasSubstr("/api/v1/pods?")));
  for (const std::string& list : pods.lists) {
    EXPECT_THAT(list, HasSubstr("labelSelector=trainyard.dev%2Fjob-name"));
  }
}

TEST(ReleasePods, TriesAgainWhenSomebodyElseWroteFirst) {
  Pods pods;
  pods.add("a", "one", {"trainyard.dev/result"});
  pods.conflicts = 3;
  EXPECT_EQ(releaseAll(pods).value(), 1);
  pods.add("a", "one", {"trainyard.dev/result"});
  pods.conflicts = 1000;
  EXPECT_THAT(releaseAll(pods).status().ToString(), HasSubstr("pod a/one"));
}

TEST(ReleasePods, OneThatIsGoneIsNone) {
  Pods pods;
  pods.add("a", "one", {"trainyard.dev/result"});
  pods.vanishing = true;
  EXPECT_EQ(releaseAll(pods).value(), 0);
}

TEST(ReleasePods, SaysWhichPodItMayNotWrite) {
  Pods pods;
  pods.add("a", "one", {"trainyard.dev/result"});
  pods.forbidden = "one";
  const Status status = releaseAll(pods).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("pod a/one"));
}

TEST(ReleasePods, OneThatCannotBeWrittenHoldsBackNoOther) {
  Pods pods;
  for (int i = 0; i < 40; ++i) pods.add("a", fmt::format("pod-{}", i), {"trainyard.dev/result"});
  pods.forbidden = "pod-0";
  const Status status = releaseAll(pods).status();
  EXPECT_THAT(status.ToString(), HasSubstr("39 pods are released, 1 are not: pod a/pod-0"));
  for (int i = 1; i < 40; ++i) {
    EXPECT_EQ(pods.finalizers("a", fmt::format("pod-{}", i)), Json::array()) << i;
  }
}

}  // namespace
}  // namespace trainyard::control
