#include "operator/kube/client.h"

#include <thread>

#include "absl/strings/escaping.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/kube/lines.h"
#include "operator/kube/root_secret.h"
#include "tests/operator/kube/fake_transport.h"

namespace trainyard::control {
namespace {

using absl::StatusCode;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

HttpResponse answer(int status, const Json& body) {
  return {.status = status, .headers = {}, .body = body.dump()};
}

Json kubeStatus(int code, const std::string& reason, const std::string& message,
                const Json& details = Json::object()) {
  return {{"kind", "Status"}, {"status", "Failure"}, {"code", code},
          {"reason", reason}, {"message", message},  {"details", details}};
}

std::string headerOf(const HttpRequest& request, std::string_view name) {
  for (const auto& [key, value] : request.headers) {
    if (key == name) return value;
  }
  return "";
}

class ClientTest : public testing::Test {
 protected:
  FakeTransport transport_{[this](const HttpRequest& request) -> StatusOr<HttpResponse> {
    if (answers_.empty()) return answer(200, {{"metadata", {{"name", "x"}}}});
    auto next = answers_.front();
    if (answers_.size() > 1) answers_.erase(answers_.begin());
    return next;
  }};
  std::vector<StatusOr<HttpResponse>> answers_;
  KubeClient client_{transport_, systemClock(), {}};
};

TEST_F(ClientTest, WritesWhatTheApiWants) {
  ASSERT_TRUE(client_.get(kPods, "ns", "p").ok());
  ASSERT_TRUE(client_.create(kTrainingJobs, "ns", {{"metadata", {{"name", "j"}}}}).ok());
  ASSERT_TRUE(client_.update(kConfigMaps, "ns", {{"metadata", {{"name", "c"}}}}).ok());
  ASSERT_TRUE(client_.updateStatus(kTrainingJobs, "ns", {{"metadata", {{"name", "j"}}}}).ok());
  ASSERT_TRUE(
      client_.patchMerge(kTrainingJobs, "ns", "j", {{"spec", {{"replicas", 3}}}}, "scale").ok());
  DeleteQuery precise;
  precise.uid = "u-1";
  precise.resource_version = "42";
  precise.grace_seconds = 0;
  precise.propagation = "Background";
  ASSERT_TRUE(client_.remove(kPods, "ns", "p", precise).ok());
  const auto requests = transport_.requests();
  std::vector<std::string> lines;
  for (const HttpRequest& request : requests) {
    lines.push_back(fmt::format("{} {} {} {}", request.method, request.target,
                                headerOf(request, "Content-Type"), request.body));
  }
  const std::string job = "/apis/trainyard.dev/v1alpha1/namespaces/ns/trainingjobs";
  EXPECT_THAT(
      lines,
      ElementsAre(
          "GET /api/v1/namespaces/ns/pods/p  ",
          "POST " + job +
              " application/json {\"apiVersion\":\"trainyard.dev/v1alpha1\",\"kind\":"
              "\"TrainingJob\",\"metadata\":{\"name\":\"j\"}}",
          "PUT /api/v1/namespaces/ns/configmaps/c application/json {\"apiVersion\":\"v1\","
          "\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"}}",
          "PUT " + job +
              "/j/status application/json {\"apiVersion\":\"trainyard.dev/v1alpha1\","
              "\"kind\":\"TrainingJob\",\"metadata\":{\"name\":\"j\"}}",
          "PATCH " + job + "/j/scale application/merge-patch+json {\"spec\":{\"replicas\":3}}",
          "DELETE /api/v1/namespaces/ns/pods/p application/json {\"apiVersion\":\"v1\","
          "\"gracePeriodSeconds\":0,\"kind\":\"DeleteOptions\",\"preconditions\":{"
          "\"resourceVersion\":\"42\",\"uid\":\"u-1\"},\"propagationPolicy\":\"Background\"}"));
}

TEST_F(ClientTest, ANameNeverLeavesItsPlace) {
  EXPECT_EQ(client_.get(kPods, "ns", "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_.remove(kPods, "ns", "", {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_.update(kPods, "ns", {{"metadata", Json::object()}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(transport_.requests().empty());
  ASSERT_TRUE(client_.get(kPods, "a/../b", "p?x#y z").ok());
  EXPECT_EQ(transport_.requests().at(0).target, "/api/v1/namespaces/a%2F..%2Fb/pods/p%3Fx%23y%20z");
}

struct FailureCase {
  int http;
  std::string reason;
  StatusCode create, write;
  FailureClass cls;
};

TEST_F(ClientTest, FailuresHaveACodeAndAClass) {
  using enum FailureClass;
  const std::vector<FailureCase> cases = {
      {400, "BadRequest", StatusCode::kInvalidArgument, StatusCode::kInvalidArgument, kPermanent},
      {401, "Unauthorized", StatusCode::kUnauthenticated, StatusCode::kUnauthenticated, kPermanent},
      {403, "Forbidden", StatusCode::kPermissionDenied, StatusCode::kPermissionDenied, kPermanent},
      {404, "NotFound", StatusCode::kNotFound, StatusCode::kNotFound, kPermanent},
      {409, "AlreadyExists", StatusCode::kAlreadyExists, StatusCode::kAlreadyExists, kPermanent},
      {410, "Expired", StatusCode::kOutOfRange, StatusCode::kOutOfRange, kPermanent},
      {413, "", StatusCode::kInvalidArgument, StatusCode::kInvalidArgument, kPermanent},
      {422, "Invalid", StatusCode::kInvalidArgument, StatusCode::kInvalidArgument, kPermanent},
      {429, "TooManyRequests", StatusCode::kUnavailable, StatusCode::kUnavailable, kRetry},
      {500, "InternalError", StatusCode::kUnavailable, StatusCode::kUnavailable, kRetry},
      {503, "ServiceUnavailable", StatusCode::kUnavailable, StatusCode::kUnavailable, kRetry},
      {504, "Timeout", StatusCode::kUnavailable, StatusCode::kUnavailable, kRetry}};
  for (const FailureCase& one : cases) {
    answers_ = {answer(one.http, kubeStatus(one.http, one.reason, "because"))};
    const Status created = client_.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status();
    const Status written = client_.patchMerge(kPods, "ns", "p", Json::object()).status();
    EXPECT_EQ(created.code(), one.create) << one.http;
    EXPECT_EQ(written.code(), one.write) << one.http;
    EXPECT_EQ(failureClass(created), one.cls) << one.http;
    EXPECT_EQ(kubeReason(created), one.reason);
    EXPECT_EQ(std::string(created.message()), "create pods ns/p: because");
    EXPECT_EQ(maybeHappened(created), one.http == 500 || one.http == 504) << one.http;
    EXPECT_FALSE(maybeHappened(client_.get(kPods, "ns", "p").status())) << one.http;
  }
}

TEST_F(ClientTest, AConflictSaysWhetherToReadAgain) {
  answers_ = {answer(409, kubeStatus(409, "Conflict", "the object has been modified"))};
  const Status created = client_.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status();
  EXPECT_EQ(created.code(), StatusCode::kAborted) << "a quota's counter was contended";
  EXPECT_EQ(failureClass(created), FailureClass::kRetry);
  EXPECT_EQ(client_.update(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(client_.remove(kPods, "ns", "p", {}).status().code(), StatusCode::kFailedPrecondition);
  answers_ = {answer(422, kubeStatus(422, "Invalid", "field is immutable",
                                     {{"causes", {{{"field", "metadata.uid"}}}}}))};
  EXPECT_EQ(client_.patchMerge(kPods, "ns", "p", {{"metadata", {{"uid", "u"}}}}).status().code(),
            StatusCode::kFailedPrecondition)
      << "the object of that uid is gone";
}

TEST_F(ClientTest, TellsTheThreeMeaningsOfForbiddenApart) {
  answers_ = {answer(403, kubeStatus(403, "Forbidden",
                                     "pods \"p\" is forbidden: exceeded quota: q, requested: "
                                     "pods=1, used: pods=5, limited: pods=5"))};
  Status status = client_.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(kubeReason(status), "QuotaExceeded");
  EXPECT_EQ(failureClass(status), FailureClass::kRetry);

  answers_ = {answer(
      403, kubeStatus(403, "Forbidden", "unable to create new content in namespace ns",
                      {{"causes", {{{"reason", "NamespaceTerminating"}, {"message", "ns"}}}}}))};
  status = client_.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(kubeReason(status), "NamespaceTerminating");
}

TEST_F(ClientTest, NamesTheFieldsThatAreWrong) {
  answers_ = {answer(
      422,
      kubeStatus(
          422, "Invalid", "Pod \"p\" is invalid",
          {{"causes", {{{"field", "spec.containers[0].image"}, {"message", "Required value"}}}}}))};
  const Status status = client_.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.containers[0].image: Required value"));
}

TEST_F(ClientTest, AnAnswerThatIsNotKubernetess) {
  answers_ = {HttpResponse{.status = 502, .headers = {}, .body = "<html>\nbad gateway"}};
  const Status proxy = client_.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status();
  EXPECT_EQ(proxy.code(), StatusCode::kUnavailable);
  EXPECT_EQ(std::string(proxy.message()), "create pods ns/p: HTTP status 502: <html>");
  EXPECT_TRUE(maybeHappened(proxy));
  for (const char* body : {"", "[]", "\"text\"", "{\"a\":"}) {
    answers_ = {HttpResponse{.status = 200, .headers = {}, .body = body}};
    EXPECT_EQ(client_.get(kPods, "ns", "p").status().code(), StatusCode::kInternal) << body;
  }
}

TEST_F(ClientTest, ALostAnswerIsPassedOn) {
  answers_ = {markMaybeHappened(absl::UnavailableError("connection lost"))};
  const Status status = client_.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(maybeHappened(status));
}

HttpResponse busy(int code, const std::string& retry_after) {
  HttpResponse response = answer(code, kubeStatus(code, "TooManyRequests", "later"));
  if (!retry_after.empty()) response.headers = {{"Retry-After", retry_after}};
  return response;
}

TEST_F(ClientTest, WaitsAsLongAsTheServerSays) {
  answers_ = {busy(429, "1"), busy(503, "0"), answer(201, Json::object())};
  const TimePoint began = systemClock().now();
  EXPECT_TRUE(client_.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).ok());
  EXPECT_GE(systemClock().now() - began, seconds(1));
  EXPECT_EQ(transport_.requests().size(), 3u);
}

// "At once" is not without a pause, nor for ever.
TEST_F(ClientTest, AServerThatSaysAtOnceIsNotAskedWithoutAPause) {
  int calls = 0;
  FakeTransport overloaded([&](const HttpRequest&) -> StatusOr<HttpResponse> {
    // A bound against hangs alone.
    return ++calls > 1000 ? answer(200, Json::object()) : busy(429, "0");
  });
  KubeClientOptions options;
  options.max_wait = seconds(1);
  KubeClient client(overloaded, systemClock(), options);
  EXPECT_EQ(client.get(kPods, "ns", "p").status().code(), StatusCode::kUnavailable);
  EXPECT_LE(calls, 10);
}

TEST_F(ClientTest, DoesNotWaitForEver) {
  answers_ = {busy(429, "3600")};
  const Status status = client_.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(retryAfter(status), seconds(3600));
  EXPECT_FALSE(maybeHappened(status));
  answers_ = {busy(429, "")};
  EXPECT_EQ(retryAfter(client_.get(kPods, "ns", "p").status()), std::nullopt);
  answers_ = {busy(503, "soon")};
  EXPECT_EQ(retryAfter(client_.get(kPods, "ns", "p").status()), std::nullopt);
  EXPECT_EQ(transport_.requests().size(), 3u);
}

TEST_F(ClientTest, StoppingEndsTheWait) {
  answers_ = {busy(429, "9")};
  std::stop_source stop;
  HttpLimits limits;
  limits.stop = stop.get_token();
  std::thread stopper([&] { stop.request_stop(); });
  const TimePoint began = systemClock().now();
  EXPECT_FALSE(client_.with(limits).get(kPods, "ns", "p").ok());
  EXPECT_LT(systemClock().now() - began, seconds(8));
  stopper.join();
}

HttpResponse page(const std::vector<std::string>& names, const std::string& token) {
  Json items = Json::array();
  for (const std::string& name : names) items.push_back({{"metadata", {{"name", name}}}});
  return answer(200, {{"kind", "PodList"},
                      {"metadata", {{"resourceVersion", "77"}, {"continue", token}}},
                      {"items", items}});
}

TEST_F(ClientTest, ListsAllPages) {
  answers_ = {page({"a", "b"}, "t1/="), page({"c"}, "")};
  const auto all = client_.list(kPods, {"ns", "app=x,role in (ps)", "status.phase=Running"});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->items.size(), 3u);
  EXPECT_EQ(all->resource_version, "77");
  EXPECT_EQ(transport_.requests().at(1).target,
            "/api/v1/namespaces/ns/pods?labelSelector=app%3Dx%2Crole%20in%20%28ps%29"
            "&fieldSelector=status.phase%3DRunning&limit=500&continue=t1%2F%3D");
}

TEST_F(ClientTest, AnExpiredTokenStartsTheListAnewInOnePiece) {
  answers_ = {page({"a", "b"}, "t1"), answer(410, kubeStatus(410, "Expired", "too old")),
              page({"a", "c"}, "")};
  const auto all = client_.list(kPods, {});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->items.size(), 2u);
  EXPECT_EQ(transport_.requests().at(2).target, "/api/v1/pods");
}

TEST_F(ClientTest, AnEmptyListOfGo) {
  answers_ = {answer(200, {{"metadata", {{"resourceVersion", "5"}}}, {"items", nullptr}})};
  const auto all = client_.list(kPods, {});
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(all->items.empty());
  EXPECT_EQ(all->resource_version, "5");
}

std::string event(const std::string& type, const Json& object) {
  return Json{{"type", type}, {"object", object}}.dump() + "\n";
}

TEST_F(ClientTest, WatchHandsOnEvents) {
  const Json pod{{"metadata", {{"name", "gr\xC3\xBCn"}}}};
  answers_ = {HttpResponse{.status = 200,
                           .headers = {},
                           .body = event("ADDED", pod) + event("MODIFIED", pod) +
                                   event("DELETED", pod) +
                                   event("BOOKMARK", {{"metadata", {{"resourceVersion", "9"}}}})}};
  for (const std::size_t piece : {1u, 2u, 3u, 1000u}) {
    transport_.piece = piece;
    std::vector<WatchEvent::Type> types;
    std::vector<std::string> names;
    const Status status = client_.watch(kPods, {"", "app=x", ""}, {"8", seconds(200), {}},
                                        [&](const WatchEvent& one) {
                                          types.push_back(one.type);
                                          names.push_back(one.object["metadata"].value("name", ""));
                                          return true;
                                        });
    EXPECT_TRUE(status.ok()) << status;
    using enum WatchEvent::Type;
    EXPECT_THAT(types, ElementsAre(kAdded, kModified, kDeleted, kBookmark));
    EXPECT_EQ(names[0], "gr\xC3\xBCn");
  }
  EXPECT_EQ(transport_.requests().at(0).target,
            "/api/v1/pods?labelSelector=app%3Dx&watch=true&allowWatchBookmarks=true"
            "&resourceVersion=8&timeoutSeconds=200");
  EXPECT_GT(transport_.last_limits.deadline, seconds(200));
}

TEST_F(ClientTest, WatchMayBeginWithWhatIsThere) {
  answers_ = {HttpResponse{.status = 200, .headers = {}, .body = ""}};
  WatchRequest request;
  request.timeout = seconds(200);
  request.initial_events = true;
  ASSERT_TRUE(client_.watch(kPods, {}, request, [](const WatchEvent&) { return true; }).ok());
  EXPECT_EQ(transport_.requests().at(0).target,
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=200"
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
}

TEST_F(ClientTest, AsksRightBeforeEveryWriteWhetherItMay) {
  bool leads = true;
  KubeClientOptions options;
  options.may_write = [&leads] { return leads; };
  KubeClient client(transport_, systemClock(), options);
  // Another one has taken over while the server made us wait.
  answers_ = {HttpResponse{.status = 429, .headers = {{"Retry-After", "0"}}, .body = "{}"}};
  FakeTransport pausing([&](const HttpRequest&) -> StatusOr<HttpResponse> {
    leads = false;
    return answers_.front();
  });
  KubeClient paused(pausing, systemClock(), options);
  EXPECT_EQ(paused.create(kPods, "ns", {{"metadata", {{"name", "p"}}}}).status().code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(pausing.requests().size(), 1u) << "it is not sent again";
  EXPECT_EQ(client.remove(kPods, "ns", "p", {}).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(transport_.requests().size(), 0u);
  answers_.clear();
  EXPECT_TRUE(client.get(kPods, "ns", "p").ok()) << "who may not write may look";
}

TEST_F(ClientTest, WatchFailsByStatusOrByEvent) {
  const Json gone = kubeStatus(410, "Expired", "too old resource version: 1 (9)");
  const auto watch = [&] {
    return client_.watch(kPods, {}, {"1", seconds(200), {}},
                         [](const WatchEvent&) { return true; });
  };
  answers_ = {answer(410, gone)};
  EXPECT_EQ(watch().code(), StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(watch().message()), HasSubstr("watch pods: too old resource version"));
  answers_ = {HttpResponse{.status = 200, .headers = {}, .body = event("ERROR", gone)}};
  EXPECT_EQ(watch().code(), StatusCode::kOutOfRange);
  const Json ahead = kubeStatus(504, "Timeout", "Too large resource version",
                                {{"causes", {{{"reason", "ResourceVersionTooLarge"}}}}});
  answers_ = {answer(504, ahead)};
  EXPECT_EQ(watch().code(), StatusCode::kOutOfRange);
  answers_ = {busy(429, "7")};
  EXPECT_EQ(retryAfter(watch()), seconds(7));
  for (const char* body : {"nonsense\n", "{\"type\":\"ADDED\"}\n", "{\"type\":1,\"object\":{}}\n",
                           "{\"type\":\"OTHER\",\"object\":{}}\n"}) {
    answers_ = {HttpResponse{.status = 200, .headers = {}, .body = body}};
    EXPECT_EQ(watch().code(), StatusCode::kInternal) << body;
  }
}

TEST_F(ClientTest, WatchEndsWhenTheReaderHasEnough) {
  answers_ = {
      HttpResponse{.status = 200,
                   .headers = {},
                   .body = event("ADDED", Json::object()) + event("ADDED", Json::object())}};
  transport_.piece = 1000;
  int events = 0;
  EXPECT_TRUE(client_
                  .watch(kPods, {}, {"1", seconds(200), {}},
                         [&](const WatchEvent&) {
                           ++events;
                           return false;
                         })
                  .ok());
  EXPECT_EQ(events, 1);
}

TEST(LineSplitter, BoundsALine) {
  internal::LineSplitter lines(10);
  std::vector<std::string> seen;
  const auto take = [&](std::string_view line) {
    seen.emplace_back(line);
    return absl::OkStatus();
  };
  EXPECT_TRUE(lines.push("12345\n\n678", take).ok());
  EXPECT_TRUE(lines.push("90\nabc", take).ok());
  EXPECT_THAT(seen, ElementsAre("12345", "67890"));
  EXPECT_EQ(lines.rest(), "abc");
  EXPECT_EQ(lines.push("12345678", take).code(), StatusCode::kResourceExhausted);
}

TEST_F(ClientTest, ARootSecretWhoseAnswerWasLostIsRead) {
  const Json made{{"metadata", {{"name", "root"}}},
                  {"data", {{"root", absl::Base64Escape(std::string(kMinRootSecret, 'r'))}}}};
  answers_ = {answer(404, kubeStatus(404, "NotFound", "none")),
              markMaybeHappened(absl::UnavailableError("connection lost")), answer(200, made)};
  const auto root = findOrMakeRootSecret(client_, "ns", "root");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(*root, std::string(kMinRootSecret, 'r'));
  std::vector<std::string> methods;
  for (const HttpRequest& request : transport_.requests()) methods.push_back(request.method);
  EXPECT_THAT(methods, ElementsAre("GET", "POST", "GET"));
}

}  // namespace
}  // namespace trainyard::control
