// The client, the cache and the lease against a real apiserver, and through a proxy that
// misbehaves.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <set>
#include <source_location>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/cache/reflector.h"
#include "operator/kube/client.h"
#include "operator/kube/connection.h"
#include "operator/kube/lease_store.h"
#include "operator/kube/root_secret.h"
#include "operator/lease/leader_elector.h"
#include "tests/base/process/temp_dir.h"
#include "tests/operator/kube/connection_library.h"
#include "tests/operator/kube/fault_proxy.h"
#include "tests/operator/kube/test_apiserver.h"

namespace trainyard::control {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Json = nlohmann::json;

Waited eventually(const std::function<bool()>& condition,
                  std::source_location where = std::source_location::current()) {
  return trainyard::eventually(condition, seconds(60), where);
}

// A namespace of each test's own.
class ApiserverTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = kubeconfigPath();
    if (path.empty()) return missApiserver();
    const auto config = loadKubeconfig(path, "");
    ASSERT_TRUE(config.ok()) << config.status();
    config_ = *config;
    transport_ = connect();
    client_ = std::make_unique<KubeClient>(*transport_, systemClock());
    static std::atomic<int> count{0};
    ns_ = fmt::format("kube-client-{}-{}", ::getpid(), ++count);
    const auto made = client_->create(kNamespaces, "", {{"metadata", {{"name", ns_}}}});
    ASSERT_TRUE(made.ok()) << made.status();
  }
  void TearDown() override {
    if (client_ && !ns_.empty()) (void)client_->remove(kNamespaces, "", ns_, {});
  }

  std::unique_ptr<HttpTransport> connect() const {
    auto transport = connectTo(config_, systemClock(), byLibraryUnderTest());
    EXPECT_TRUE(transport.ok()) << transport.status();
    return transport.ok() ? *std::move(transport) : nullptr;
  }
  Json map(const std::string& name, const std::string& value = "1") const {
    return {{"metadata", {{"name", name}, {"labels", {{"app", "test"}}}}},
            {"data", {{"key", value}}}};
  }
  StatusOr<Json> makeMap(const std::string& name, const std::string& value = "1") {
    return client_->create(kConfigMaps, ns_, map(name, value));
  }
  ListQuery ours() const { return {ns_, "app=test", ""}; }

  KubeConfig config_;
  std::unique_ptr<HttpTransport> transport_;
  std::unique_ptr<KubeClient> client_;
  std::string ns_;
};

std::string versionText(const Json& object) {
  return object["metadata"]["resourceVersion"].get<std::string>();
}

TEST_F(ApiserverTest, ObjectsFromCreationToDeletion) {
  const auto made = makeMap("a");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(makeMap("a").status().code(), StatusCode::kAlreadyExists);
  const auto got = client_->get(kConfigMaps, ns_, "a");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)["data"]["key"], "1");

  Json changed = *got;
  changed["data"]["key"] = "2";
  const auto updated = client_->update(kConfigMaps, ns_, changed);
  ASSERT_TRUE(updated.ok()) << updated.status();
  const auto stale = client_->update(kConfigMaps, ns_, changed);
  EXPECT_EQ(stale.status().code(), StatusCode::kFailedPrecondition) << stale.status();
  EXPECT_EQ(kubeReason(stale.status()), "Conflict");

  const auto patched = client_->patchMerge(kConfigMaps, ns_, "a", {{"data", {{"more", "x"}}}});
  ASSERT_TRUE(patched.ok()) << patched.status();
  EXPECT_EQ((*patched)["data"], Json({{"key", "2"}, {"more", "x"}}));
  for (const Json& metadata :
       {Json{{"resourceVersion", versionText(*got)}}, Json{{"uid", "other"}}}) {
    const auto refused = client_->patchMerge(kConfigMaps, ns_, "a",
                                             {{"metadata", metadata}, {"data", {{"more", "y"}}}});
    EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition) << refused.status();
  }

  DeleteQuery wrong;
  wrong.uid = "other";
  EXPECT_EQ(client_->remove(kConfigMaps, ns_, "a", wrong).status().code(),
            StatusCode::kFailedPrecondition);
  DeleteQuery right;
  right.uid = objectUid(*got);
  EXPECT_TRUE(client_->remove(kConfigMaps, ns_, "a", right).ok());
  EXPECT_EQ(client_->get(kConfigMaps, ns_, "a").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(client_->remove(kConfigMaps, ns_, "a", right).status().code(), StatusCode::kNotFound);
}

TEST_F(ApiserverTest, OperatorsThatStartTogetherHaveOneRootSecret) {
  constexpr int kOperators = 8;
  std::vector<StatusOr<std::string>> roots(kOperators);
  {
    std::vector<std::jthread> operators;
    for (StatusOr<std::string>& root : roots)
      operators.emplace_back([&] { root = findOrMakeRootSecret(*client_, ns_, "root"); });
  }
  for (const StatusOr<std::string>& root : roots) {
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(*root, *roots[0]);
    EXPECT_GE(root->size(), kMinRootSecret);
  }
  EXPECT_EQ(findOrMakeRootSecret(*client_, ns_, "root").value(), *roots[0]);
  EXPECT_NE(findOrMakeRootSecret(*client_, ns_, "another").value(), *roots[0]);
  // A label or an owner by which others prune would take it from jobs that run.
  const Json metadata = client_->get(kSecrets, ns_, "root").value()["metadata"];
  EXPECT_EQ(metadata["labels"], Json({{"app.kubernetes.io/part-of", "trainyard"}}));
  EXPECT_FALSE(metadata.contains("ownerReferences"));

  ASSERT_TRUE(client_
                  ->create(kSecrets, ns_,
                           {{"metadata", {{"name", "short"}}}, {"stringData", {{"root", "guess"}}}})
                  .ok());
  const auto refused = findOrMakeRootSecret(*client_, ns_, "short");
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr(ns_ + "/short"));
}

TEST_F(ApiserverTest, RefusalsAreToldApart) {
  const Json pod{{"metadata", {{"name", "p"}}},
                 {"spec", {{"containers", {{{"name", "task"}, {"image", ""}}}}}}};
  const Status invalid = client_->create(kPods, ns_, pod).status();
  EXPECT_EQ(invalid.code(), StatusCode::kInvalidArgument) << invalid;
  EXPECT_THAT(std::string(invalid.message()), HasSubstr("spec.containers[0].image"));
  const Status unknown = client_->get({"nobody.dev", "v1", "things", "Thing"}, ns_, "x").status();
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound) << unknown;

  const Json quota{{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"secrets", "1"}}}}}};
  const KubeResource quotas{"", "v1", "resourcequotas", "ResourceQuota"};
  ASSERT_TRUE(client_->create(quotas, ns_, quota).ok());
  int number = 0;
  Status refused;
  // Counting begins when the quota's controller has seen it.
  ASSERT_TRUE(eventually([&] {
    refused =
        client_->create(kSecrets, ns_, {{"metadata", {{"name", fmt::format("s{}", ++number)}}}})
            .status();
    return refused.code() == StatusCode::kResourceExhausted;
  })) << refused;
  EXPECT_EQ(failureClass(refused), FailureClass::kRetry);

  ASSERT_TRUE(makeMap("kept").ok());
  ASSERT_TRUE(client_
                  ->patchMerge(kConfigMaps, ns_, "kept",
                               {{"metadata", {{"finalizers", {"trainyard.dev/test"}}}}})
                  .ok());
  ASSERT_TRUE(client_->remove(kNamespaces, "", ns_, {}).ok());
  Status terminating;
  ASSERT_TRUE(eventually([&] {
    terminating = makeMap(fmt::format("late-{}", ++number)).status();
    return !terminating.ok();
  }));
  EXPECT_EQ(terminating.code(), StatusCode::kPermissionDenied) << terminating;
  EXPECT_EQ(kubeReason(terminating), "NamespaceTerminating");
  EXPECT_TRUE(
      client_->patchMerge(kConfigMaps, ns_, "kept", {{"metadata", {{"finalizers", nullptr}}}})
          .ok());
}

TEST_F(ApiserverTest, ListsInPages) {
  for (int i = 0; i < 11; ++i) ASSERT_TRUE(makeMap(fmt::format("m{}", i)).ok());
  std::set<std::string> names;
  std::string token;
  int pages = 0;
  do {
    const auto page = client_->listPage(kConfigMaps, ours(), 4, token);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const Json& item : page->items) names.insert(objectKey(item).name);
    EXPECT_NE(parseResourceVersion(page->resource_version), 0u);
    token = page->continue_token;
    ++pages;
  } while (!token.empty());
  EXPECT_EQ(names.size(), 11u);
  EXPECT_EQ(pages, 3);
}

TEST_F(ApiserverTest, AWatchEndsWhenItsTimeIsOver) {
  const auto all = client_->list(kConfigMaps, ours());
  ASSERT_TRUE(all.ok()) << all.status();
  bool bookmark = false;
  const Status status = client_->watch(
      kConfigMaps, ours(), {all->resource_version, seconds(1), {}}, [&](const WatchEvent& event) {
        bookmark = bookmark || event.type == WatchEvent::Type::kBookmark;
        return true;
      });
  EXPECT_TRUE(status.ok()) << status;
}

// A reflector of this namespace's maps, over a client of its own.
class Cache {
 public:
  Cache(const KubeConfig& config, const ListQuery& query, KubeClientOptions options = {},
        bool stream = false) {
    auto transport = connectTo(config, systemClock(), byLibraryUnderTest());
    EXPECT_TRUE(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
    client_ = std::make_unique<KubeClient>(*transport_, systemClock(), options);
    source_ = makeListWatch(*client_, kConfigMaps, query);
    ReflectorOptions quick;
    quick.page_size = 3;
    quick.stream = stream;
    quick.backoff = milliseconds(20);
    quick.max_backoff = milliseconds(100);
    ReflectorCallbacks callbacks;
    callbacks.changed = [this](const std::vector<ObjectChange>& changes) {
      for (const ObjectChange& change : changes) deletions_ += change.after == nullptr;
    };
    reflector_ =
        std::make_unique<Reflector>("configmaps", *source_, systemClock(), quick, callbacks);
    reflector_->start();
    EXPECT_TRUE(reflector_->waitForSync(seconds(60)).ok());
  }

  Reflector& operator*() { return *reflector_; }
  int deletions() const { return deletions_; }
  // Waits until the cache is as the apiserver says now.
  Waited agreesWith(KubeClient& client, const ListQuery& query) {
    return eventually([&] {
      const auto there = client.list(kConfigMaps, query);
      std::set<std::pair<std::string, std::uint64_t>> wanted, held;
      if (!there.ok()) return false;
      for (const Json& item : there->items) {
        wanted.insert({objectKey(item).name, objectVersion(item)});
      }
      for (const PackedPtr& item : reflector_->store().all()) {
        held.insert({objectKey(item->unpack()).name, item->version()});
      }
      return wanted == held;
    });
  }

 private:
  std::unique_ptr<HttpTransport> transport_;
  std::unique_ptr<KubeClient> client_;
  std::unique_ptr<ListWatch> source_;
  std::atomic<int> deletions_{0};
  std::unique_ptr<Reflector> reflector_;
};

TEST_F(ApiserverTest, TheCacheFollows) {
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(makeMap(fmt::format("m{}", i)).ok());
  ASSERT_TRUE(client_->create(kConfigMaps, ns_, {{"metadata", {{"name", "not-ours"}}}}).ok());
  Cache cache(config_, ours());
  EXPECT_EQ((*cache).store().size(), 7u);
  const auto made = makeMap("new");
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(client_->remove(kConfigMaps, ns_, "m3", {}).ok());
  ASSERT_TRUE(
      client_->patchMerge(kConfigMaps, ns_, "m4", {{"metadata", {{"labels", nullptr}}}}).ok());
  EXPECT_TRUE(cache.agreesWith(*client_, ours()));
  EXPECT_EQ((*cache).store().size(), 6u);
  EXPECT_GE((*cache).store().newestVersion(), objectVersion(*made)) << "our own write is seen";
  EXPECT_FALSE((*(*cache).store().get({ns_, "new"}))["metadata"].contains("managedFields"));
  EXPECT_EQ((*cache).counts().lists, 1u);
}

TEST_F(ApiserverTest, TheCacheBeginsWithAStreamOfWhatIsThere) {
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(makeMap(fmt::format("m{}", i)).ok());
  Cache cache(config_, ours(), {}, true);
  EXPECT_EQ((*cache).store().size(), 7u);
  const auto made = makeMap("new");
  ASSERT_TRUE(made.ok());
  ASSERT_TRUE(client_->remove(kConfigMaps, ns_, "m3", {}).ok());
  EXPECT_TRUE(cache.agreesWith(*client_, ours()));
  EXPECT_GE((*cache).store().newestVersion(), objectVersion(*made)) << "our own write is seen";
  EXPECT_EQ((*cache).counts().failures, 0u) << "this server offers it";
  EXPECT_EQ((*cache).counts().watches, 1u) << "one watch is both";
}

class ProxyTest : public ApiserverTest {
 protected:
  void SetUp() override {
    ApiserverTest::SetUp();
    if (transport_) proxy_ = std::make_unique<FaultProxy>(connect());
  }
  void TearDown() override {
    proxy_.reset();
    ApiserverTest::TearDown();
  }
  static Fault watchFault(Fault::Kind kind, int times) {
    Fault fault;
    fault.kind = kind;
    fault.target_part = "watch=true";
    fault.times = times;
    return fault;
  }
  std::unique_ptr<FaultProxy> proxy_;
};

TEST_F(ProxyTest, ListsInPagesWhereStreamsAreNotOffered) {
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(makeMap(fmt::format("m{}", i)).ok());
  Fault refuse;
  refuse.target_part = "sendInitialEvents";
  refuse.times = -1;
  refuse.status = 422;
  refuse.body = R"({"kind":"Status","code":422,"reason":"Invalid","message":"sendInitialEvents: )"
                R"(Forbidden: sendInitialEvents is forbidden for watch"})";
  proxy_->inject(refuse);
  Cache cache(proxy_->config(), ours(), {}, true);
  EXPECT_EQ((*cache).store().size(), 7u);
  EXPECT_EQ((*cache).counts().failures, 1u);
  ASSERT_TRUE(makeMap("new").ok());
  EXPECT_TRUE(cache.agreesWith(*client_, ours()));
}

TEST_F(ProxyTest, HandsOnAndCounts) {
  const auto through = connectTo(proxy_->config(), systemClock(), byLibraryUnderTest());
  ASSERT_TRUE(through.ok());
  KubeClient client(**through, systemClock());
  std::atomic<int> told{0};
  proxy_->onWrite([&](int count, const ProxiedRequest&) { told = count; });
  EXPECT_TRUE(client.create(kConfigMaps, ns_, map("a")).ok());
  EXPECT_TRUE(client.get(kConfigMaps, ns_, "a").ok());
  EXPECT_EQ(client.create(kConfigMaps, ns_, map("a")).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(proxy_->writes(), 2);
  EXPECT_EQ(told, 2);
  EXPECT_EQ(proxy_->requests().size(), 3u);
}

TEST_F(ProxyTest, ALostReplyIsAFactToLookFor) {
  const auto through = connectTo(proxy_->config(), systemClock(), byLibraryUnderTest());
  ASSERT_TRUE(through.ok());
  KubeClient client(**through, systemClock());
  Fault lose;
  lose.kind = Fault::Kind::kLoseReply;
  lose.method = "POST";
  proxy_->inject(lose);
  const Status lost = client.create(kConfigMaps, ns_, map("a")).status();
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable) << lost;
  EXPECT_TRUE(maybeHappened(lost));
  EXPECT_EQ(client.create(kConfigMaps, ns_, map("a")).status().code(), StatusCode::kAlreadyExists);
}

TEST_F(ProxyTest, ABusyServerIsAskedLater) {
  const auto through = connectTo(proxy_->config(), systemClock(), byLibraryUnderTest());
  ASSERT_TRUE(through.ok());
  KubeClient client(**through, systemClock());
  Fault busy;
  busy.status = 429;
  busy.headers = "Retry-After: 1\r\n";
  busy.times = 2;
  proxy_->inject(busy);
  const TimePoint began = systemClock().now();
  EXPECT_TRUE(client.create(kConfigMaps, ns_, map("a")).ok());
  EXPECT_GE(systemClock().now() - began, seconds(2));
}

TEST_F(ProxyTest, TheCacheOutlivesDroppedWatches) {
  proxy_->inject(watchFault(Fault::Kind::kDropStream, -1));
  Cache cache(proxy_->config(), ours());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(makeMap(fmt::format("m{}", i)).ok());
    if (i % 3 == 0) {
      ASSERT_TRUE(client_->remove(kConfigMaps, ns_, fmt::format("m{}", i), {}).ok());
    }
  }
  EXPECT_TRUE(cache.agreesWith(*client_, ours()));
  EXPECT_TRUE(eventually([&] { return (*cache).counts().watches > 5; }));
  EXPECT_EQ((*cache).counts().lists, 1u) << "a dropped watch goes on where it was";
  proxy_->dropAll();
  ASSERT_TRUE(makeMap("last").ok());
  EXPECT_TRUE(cache.agreesWith(*client_, ours()));
}

TEST_F(ProxyTest, TheCacheListsAgainAfterExpiryAndLosesNoDeletion) {
  ASSERT_TRUE(makeMap("goes").ok());
  ASSERT_TRUE(makeMap("stays").ok());
  Fault expired;
  expired.target_part = "watch=true";
  expired.status = 410;
  expired.body = R"({"kind":"Status","code":410,"reason":"Expired"})";
  expired.times = 1;
  proxy_->inject(watchFault(Fault::Kind::kSilence, 1));
  proxy_->inject(expired);
  KubeClientOptions impatient;
  impatient.watch_silence = seconds(2);
  Cache cache(proxy_->config(), ours(), impatient);
  ASSERT_TRUE(client_->remove(kConfigMaps, ns_, "goes", {}).ok());
  EXPECT_TRUE(cache.agreesWith(*client_, ours()));
  EXPECT_EQ(cache.deletions(), 1);
  EXPECT_EQ((*cache).counts().lists, 2u);
}

TEST_F(ProxyTest, TheCacheGivesUpASilentWatch) {
  proxy_->inject(watchFault(Fault::Kind::kSilence, 1));
  KubeClientOptions impatient;
  impatient.watch_silence = seconds(1);
  Cache cache(proxy_->config(), ours(), impatient);
  ASSERT_TRUE(makeMap("unheard").ok());
  EXPECT_TRUE(cache.agreesWith(*client_, ours()));
  EXPECT_EQ((*cache).counts().lists, 1u);
}

TEST_F(ProxyTest, AHeldWatchShowsNothingNew) {
  Fault hold = watchFault(Fault::Kind::kHold, 1);
  proxy_->inject(hold);
  Cache cache(proxy_->config(), ours());
  const auto made = makeMap("held");
  ASSERT_TRUE(made.ok());
  EXPECT_LT((*cache).store().newestVersion(), objectVersion(*made));
  EXPECT_EQ((*cache).store().size(), 0u);
  EXPECT_TRUE(eventually([&] {
    proxy_->release();
    return (*cache).store().newestVersion() >= objectVersion(*made);
  }));
  EXPECT_EQ((*cache).store().size(), 1u);
}

TEST_F(ProxyTest, APageThatExpiresStartsTheListAnew) {
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(makeMap(fmt::format("m{}", i)).ok());
  Fault expired;
  expired.target_part = "continue=";
  expired.status = 410;
  expired.body = R"({"kind":"Status","code":410,"reason":"Expired"})";
  proxy_->inject(expired);
  Cache cache(proxy_->config(), ours());
  EXPECT_EQ((*cache).store().size(), 7u);
}

TEST_F(ProxyTest, OneLeadsAndTheOtherTakesOver) {
  const auto options = [](const std::string& identity) {
    LeaderOptions result;
    result.identity = identity;
    result.lease_duration = seconds(6);
    result.renew_deadline = seconds(4);
    result.retry_period = milliseconds(200);
    return result;
  };
  const auto cut_off = connectTo(proxy_->config(), systemClock(), byLibraryUnderTest());
  ASSERT_TRUE(cut_off.ok());
  const auto first_store = makeLeaseStore(**cut_off, systemClock(), ns_, "leader");
  const auto second_store = makeLeaseStore(*transport_, systemClock(), ns_, "leader");
  std::atomic<bool> lost{false};
  LeaderElector first(options("first"), *first_store, systemClock(),
                      {{}, [&](const std::string&) { lost = true; }, {}});
  LeaderElector second(options("second"), *second_store, systemClock(), {});
  ASSERT_TRUE(first.start().ok());
  ASSERT_TRUE(eventually([&] { return first.holds(); }));
  ASSERT_TRUE(second.start().ok());
  Fault away;
  away.kind = Fault::Kind::kDropRequest;
  away.times = -1;
  proxy_->inject(away);
  bool both = false;
  ASSERT_TRUE(eventually([&] {
    const bool second_holds = second.holds();
    both = both || (second_holds && first.holds());
    return second_holds;
  }));
  EXPECT_FALSE(both);
  EXPECT_TRUE(lost);
  first.stop();
  second.stop();
  const auto lease = client_->get(kLeases, ns_, "leader");
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ((*lease)["spec"].value("holderIdentity", ""), "") << "released";
  EXPECT_EQ((*lease)["spec"].value("leaseTransitions", 0), 1);
}

}  // namespace
}  // namespace trainyard::control
