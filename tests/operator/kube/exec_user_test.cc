// Users whom a program knows: a script of the test's own, run as an apiserver's client runs it.
#include "operator/kube/exec_user.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/core/rfc3339.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/kube/client.h"
#include "operator/kube/connection.h"
#include "tests/operator/kube/connection_library.h"
#include "tests/operator/kube/http_fixture.h"

namespace trainyard::control {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class ExecUserTest : public testing::Test {
 protected:
  ExecUserTest() { fs::create_directories(folder_); }
  ~ExecUserTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A program that counts its runs and says what is in the file `answer`.
  void makePlugin(const std::string& before = "") {
    write("plugin", fmt::format("#!/bin/sh\ncd {}\necho run >> runs\n"
                                "printf '%s' \"$KUBERNETES_EXEC_INFO\" > info\n"
                                "echo \"$0 $* $WHO\" > words\n{}\ncat answer\n",
                                folder_.native(), before));
    ::chmod((folder_ / "plugin").c_str(), 0755);
  }
  std::size_t runs() const {
    const std::string lines = read("runs");
    return static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n'));
  }
  void answer(const std::string& status) {
    write("answer", fmt::format(R"({{"apiVersion":"client.authentication.k8s.io/v1",
      "kind":"ExecCredential","status":{}}})",
                                status));
  }
  ExecPlugin plugin() const {
    return {.place = "config: users[u].exec",
            .api_version = "client.authentication.k8s.io/v1",
            .command = (folder_ / "plugin").native(),
            .args = {"get", "token"},
            .env = {{"WHO", "me"}},
            .install_hint = "install it from the moon",
            .cluster = ""};
  }
  // A kubeconfig whose user is the program.
  StatusOr<KubeConfig> configWith(const std::string& server, const std::string& ca,
                                  const std::string& more = "") {
    write("ca.crt", ca);
    write("config", fmt::format(R"(
current-context: x
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: ca.crt}}}}]
users:
- name: u
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ./plugin
      args: [get, token]
      env: [{{name: WHO, value: me}}]
      interactiveMode: IfAvailable
{}
)",
                                server, more));
    return loadKubeconfig((folder_ / "config").native(), "");
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / fmt::format("trainyard-exec-{}", ::getpid());
  FakeClock clock_;
};

TEST_F(ExecUserTest, IsAskedOnceUntilItsAnswerExpires) {
  makePlugin();
  answer(fmt::format(R"({{"token":"first","expirationTimestamp":"{}"}})",
                     formatRfc3339(clock_.unixMillis() + 60'000)));
  ExecUser user(plugin());
  EXPECT_EQ(user.credential(clock_, {})->token, "first");
  answer(R"({"token":"second"})");
  clock_.advance(seconds(59));
  EXPECT_EQ(user.credential(clock_, {})->token, "first");
  EXPECT_EQ(runs(), 1U);
  clock_.advance(seconds(1));
  EXPECT_EQ(user.credential(clock_, {})->token, "second");
  clock_.advance(std::chrono::hours(1000));
  EXPECT_EQ(user.credential(clock_, {})->token, "second") << "one without an end stays";
  EXPECT_EQ(runs(), 2U);
}

TEST_F(ExecUserTest, IsToldWhatItIsAskedFor) {
  makePlugin();
  answer(R"({"token":"t"})");
  ExecPlugin told = plugin();
  told.cluster = R"({"server":"https://h:1"})";
  ASSERT_TRUE(ExecUser(told).credential(clock_, {}).ok());
  const auto info = nlohmann::json::parse(read("info"));
  EXPECT_EQ(info["kind"], "ExecCredential");
  EXPECT_EQ(info["apiVersion"], "client.authentication.k8s.io/v1");
  EXPECT_EQ(info["spec"]["interactive"], false);
  EXPECT_EQ(info["spec"]["cluster"]["server"], "https://h:1");
  EXPECT_THAT(read("words"), HasSubstr("get token me"));
}

TEST_F(ExecUserTest, ARefusedAnswerIsAskedForOnceBySeveral) {
  makePlugin();
  answer(R"({"token":"first"})");
  ExecUser user(plugin());
  const std::uint64_t issue = user.credential(clock_, {})->issue;
  answer(R"({"token":"second"})");
  user.refuse(issue);
  EXPECT_EQ(user.credential(clock_, {})->token, "second");
  user.refuse(issue);  // another caller's, of the former answer
  EXPECT_EQ(user.credential(clock_, {})->token, "second");
  EXPECT_EQ(runs(), 2U);
}

TEST_F(ExecUserTest, WhatItWritesToStandardErrorIsNoAnswer) {
  makePlugin("echo warning: old >&2");
  answer(R"({"token":"t"})");
  EXPECT_EQ(ExecUser(plugin()).credential(clock_, {})->token, "t");
}

TEST_F(ExecUserTest, NamesWhatFails) {
  const auto messageOf = [this](ExecPlugin plugin, Duration limit = seconds(60)) {
    const auto got = ExecUser(std::move(plugin), limit).credential(clock_, {});
    EXPECT_EQ(got.status().code(), absl::StatusCode::kUnauthenticated) << got.status();
    return std::string(got.status().message());
  };
#ifndef TRAINYARD_TSAN
  EXPECT_THAT(messageOf(plugin()), HasSubstr("install it from the moon"));
#endif
  makePlugin("exit 3");
  EXPECT_THAT(messageOf(plugin()), HasSubstr("config: users[u].exec"));
  EXPECT_THAT(messageOf(plugin()), HasSubstr("exit code 3"));
  makePlugin("exec sleep 600");
  EXPECT_THAT(messageOf(plugin(), std::chrono::milliseconds(200)), HasSubstr("longer than"));
  makePlugin();
  write("answer", "token: t");
  EXPECT_THAT(messageOf(plugin()), HasSubstr("expected a JSON object"));
  answer(R"({"clientCertificateData":"c"})");
  EXPECT_THAT(messageOf(plugin()), HasSubstr("go together"));
  answer("{}");
  EXPECT_THAT(messageOf(plugin()), HasSubstr("neither a token nor"));
  answer(R"({"token":"secret","expirationTimestamp":"soon"})");
  EXPECT_THAT(messageOf(plugin()), HasSubstr("expirationTimestamp"));
  EXPECT_THAT(messageOf(plugin()), Not(HasSubstr("secret")));
  ExecPlugin beta = plugin();
  beta.api_version = "client.authentication.k8s.io/v1beta1";
  answer(R"({"token":"t"})");
  EXPECT_THAT(messageOf(beta), HasSubstr("expected client.authentication.k8s.io/v1beta1"));
}

TEST_F(ExecUserTest, OneThatTakesTooLongEndsWithWhatItHasStarted) {
  makePlugin("sleep 600 & echo $! > inner.new; mv inner.new inner; wait");
  ExecUser user(plugin(), seconds(2));
  EXPECT_EQ(user.credential(clock_, {}).status().code(), absl::StatusCode::kUnauthenticated);
  const int inner = std::stoi(read("inner"));
  // Gone, or waiting to be reaped by whoever adopted it.
  const auto runs_still = [inner] {
    std::ifstream file(fmt::format("/proc/{}/stat", inner));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return !text.empty() && text.find(") Z ") == std::string::npos;
  };
  const TimePoint end = systemClock().now() + seconds(60);
  while (runs_still() && systemClock().now() < end) std::this_thread::yield();
  EXPECT_FALSE(runs_still());
}

TEST_F(ExecUserTest, AStopEndsIt) {
  makePlugin("echo $$ > started.new; mv started.new started; exec sleep 600");
  std::stop_source stop;
  ExecUser user(plugin());
  std::jthread later([&] {
    const TimePoint end = systemClock().now() + seconds(60);
    while (!fs::exists(folder_ / "started") && systemClock().now() < end) std::this_thread::yield();
    stop.request_stop();
  });
  EXPECT_EQ(user.credential(clock_, stop.get_token()).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(ExecUserTest, AServerIsShownItsToken) {
  makePlugin();
  answer(R"({"token":"first"})");
  std::string accepted = "Bearer first";
  std::mutex mutex;
  TestServer server(withTls(), [&](ServerConnection& peer, const SeenRequest& request) {
    const std::lock_guard lock(mutex);
    const bool good = request.headers.at("authorization") == accepted;
    return peer.respond(good ? 200 : 401, good ? R"({"metadata":{"name":"p"}})" : "{}");
  });
  const auto config = configWith(server.url(), authority().pem());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(runs(), 0U) << "reading the file runs nothing";
  const auto transport = connectTo(*config, systemClock(), byLibraryUnderTest());
  ASSERT_TRUE(transport.ok()) << transport.status();
  const auto status = [&] {
    const auto response = (*transport)->call(kGet, patient());
    return response.ok() ? response->status : 0;
  };
  EXPECT_EQ(status(), 200);
  EXPECT_EQ(status(), 200);
  // A second connection of the same user asks nobody anew.
  const auto second = connectTo(*config, systemClock(), byLibraryUnderTest());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->call(kGet, patient())->status, 200);
  EXPECT_EQ(runs(), 1U);
  answer(R"({"token":"second"})");
  {
    const std::lock_guard lock(mutex);
    accepted = "Bearer second";
  }
  EXPECT_EQ(status(), 200) << "asked again after a 401";
  EXPECT_EQ(runs(), 2U);
}

TEST_F(ExecUserTest, AServerIsShownItsCertificate) {
  TestAuthority clients("of clients");
  const auto say = [&](const std::string& name) {
    const CertificateAndKey pair = clients.client(name);
    answer(
        nlohmann::json{{"clientCertificateData", pair.cert}, {"clientKeyData", pair.key}}.dump());
  };
  makePlugin();
  say("ann");
  TestServerOptions options = withTls();
  options.client_authority = clients.pem();
  std::string accepted = "ann";
  std::mutex mutex;
  TestServer server(options, [&](ServerConnection& peer, const SeenRequest& request) {
    const std::lock_guard lock(mutex);
    EXPECT_FALSE(request.headers.contains("authorization"));
    return peer.respond(request.common_name == accepted ? 200 : 401, "{}");
  });
  const auto config = configWith(server.url(), authority().pem());
  ASSERT_TRUE(config.ok()) << config.status();
  const auto transport = connectTo(*config, systemClock(), byLibraryUnderTest());
  ASSERT_TRUE(transport.ok()) << transport.status();
  auto response = (*transport)->call(kGet, patient());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 200);
  say("bob");
  {
    const std::lock_guard lock(mutex);
    accepted = "bob";
  }
  response = (*transport)->call(kGet, patient());
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 200) << "over a new connection with the new certificate";
  EXPECT_EQ(runs(), 2U);
}

TEST_F(ExecUserTest, AServerGetsNothingFromAProgramThatFails) {
  makePlugin("exit 1");
  TestServer server(withTls(), [](ServerConnection& peer, const SeenRequest&) {
    return peer.respond(200, "{}");
  });
  const auto config = configWith(server.url(), authority().pem());
  ASSERT_TRUE(config.ok()) << config.status();
  const auto transport = connectTo(*config, systemClock(), byLibraryUnderTest());
  ASSERT_TRUE(transport.ok());
  const auto response = (*transport)->call(kGet, patient());
  EXPECT_EQ(response.status().code(), absl::StatusCode::kUnauthenticated) << response.status();
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(ExecUserTest, TheFileSaysHowItIsRun) {
  const auto config = configWith("https://h:1", "pem", "      provideClusterInfo: true");
  ASSERT_TRUE(config.ok()) << config.status();
  const ExecPlugin& read = config->exec->plugin();
  EXPECT_EQ(read.command, folder_ / "./plugin") << "from the file's folder";
  EXPECT_THAT(read.args, ElementsAre("get", "token"));
  const auto cluster = nlohmann::json::parse(read.cluster);
  EXPECT_EQ(cluster["server"], "https://h:1");
  EXPECT_EQ(cluster["certificate-authority-data"], "cGVt");
  const auto refused = [this](const std::string& more) {
    return std::string(configWith("https://h:1", "pem", more).status().message());
  };
  EXPECT_THAT(refused("    token: abc"), HasSubstr("users[u].exec"));
  EXPECT_THAT(refused("    auth-provider: {name: x}"), HasSubstr("users[u].auth-provider"));
}

}  // namespace
}  // namespace trainyard::control
