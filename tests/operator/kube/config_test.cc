#include "operator/kube/config.h"

#include <unistd.h>

#include <fstream>

#include "fmt/format.h"
#include "gmock/gmock.h"

namespace trainyard::control {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() { fs::create_directories(folder_); }
  ~ConfigTest() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).native();
  }
  std::string messageOf(const std::string& text, std::string_view context = "") {
    const auto config = loadKubeconfig(write("config", text), context);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << config.status();
    return std::string(config.status().message());
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / fmt::format("trainyard-kube-{}", ::getpid());
};

constexpr char kConfig[] = R"(
apiVersion: v1
kind: Config
current-context: one
clusters:
- name: a
  cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: Y2E=, tls-server-name: api.test}
- name: b
  cluster: {server: "https://[fd00::1]", certificate-authority: pki/ca.crt}
users:
- name: cert
  user: {client-certificate-data: Y2VydA==, client-key: /keys/key.pem}
- name: token
  user: {token: abc, tokenFile: token}
- name: nobody
  user: {}
contexts:
- name: one
  context: {cluster: a, user: cert, namespace: team}
- name: two
  context: {cluster: b, user: token}
- name: three
  context: {cluster: b, user: nobody}
)";

TEST_F(ConfigTest, ReadsTheCurrentContext) {
  const auto config = loadKubeconfig(write("config", kConfig), "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://10.0.0.1:6443");
  EXPECT_EQ(config->tls_server_name, "api.test");
  EXPECT_EQ(config->ca.value, "ca");
  EXPECT_EQ(config->client_cert.value, "cert");
  EXPECT_EQ(config->client_key.file, "/keys/key.pem");
  EXPECT_TRUE(config->token.empty());
  EXPECT_EQ(config->ns, "team");
}

TEST_F(ConfigTest, ReadsANamedContextWithPathsFromTheFilesFolder) {
  const auto config = loadKubeconfig(write("config", kConfig), "two");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ca.file, folder_ / "pki/ca.crt");
  EXPECT_EQ(config->token.value, "") << "a file wins";
  EXPECT_EQ(config->token.file, folder_ / "token");
  EXPECT_EQ(config->ns, "default");
  EXPECT_TRUE(loadKubeconfig(write("config", kConfig), "three").ok());
}

TEST_F(ConfigTest, PutsSeveralFilesTogether) {
  const std::string first = write("first", R"(
current-context: mixed
contexts: [{name: mixed, context: {cluster: a, user: token}}]
users: [{name: token, user: {token: first}}]
)");
  const std::string second = write("second", kConfig);
  const auto config = loadKubeconfig(first + ":/nonexistent/config:" + second, "");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://10.0.0.1:6443");
  EXPECT_EQ(config->token.value, "first");
}

TEST_F(ConfigTest, AMissingFileIsNamed) {
  const auto config = loadKubeconfig("/nonexistent/config", "");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("/nonexistent/config"));
  EXPECT_EQ(loadKubeconfig("", "").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ConfigTest, NamesWhatIsWrong) {
  EXPECT_THAT(messageOf("a: [b"), HasSubstr("config:"));
  EXPECT_THAT(messageOf("[]"), HasSubstr("expected a mapping"));
  EXPECT_THAT(messageOf("clusters: []"), HasSubstr("current-context: missing"));
  EXPECT_THAT(messageOf(kConfig, "four"), HasSubstr("no 'four' among contexts"));
  const auto with_cluster = [this](const std::string& cluster, const std::string& user) {
    return messageOf(fmt::format(
        "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
        "clusters: [{{name: c, cluster: {}}}]\nusers: [{{name: u, user: {}}}]\n",
        cluster, user));
  };
  const std::string good = "{server: 'https://h:1'}";
  EXPECT_THAT(with_cluster("{server: 5}", "{}"), HasSubstr("clusters[c].server: expected text"));
  EXPECT_THAT(with_cluster("{server: 'ftp://h'}", "{}"), HasSubstr("no https URL"));
  EXPECT_THAT(with_cluster("{}", "{}"), HasSubstr("clusters[c].server"));
  EXPECT_THAT(with_cluster("{server: 'https://h', insecure-skip-tls-verify: true}", "{}"),
              HasSubstr("insecure-skip-tls-verify: the server's certificate is always verified"));
  EXPECT_THAT(with_cluster("{server: 'https://h', certificate-authority-data: '!'}", "{}"),
              HasSubstr("certificate-authority-data: expected base64"));
  EXPECT_THAT(with_cluster("{server: 'https://h', proxy-url: 'socks5://p'}", "{}"),
              HasSubstr("clusters[c].proxy-url: only proxies that are spoken to by http"));
  EXPECT_THAT(with_cluster("{server: 'http://localhost', proxy-url: 'http://p'}", "{}"),
              HasSubstr("proxy-url: goes with an https server"));
  EXPECT_THAT(with_cluster("{server: 'https://[::1]', proxy-url: 'http://p'}", "{}"),
              HasSubstr("proxy-url: goes with an https server"));
  EXPECT_THAT(with_cluster(good, "{exec: {command: aws}}"),
              HasSubstr("users[u].exec.apiVersion: expected client.authentication.k8s.io/v1 or"));
  const auto with_exec = [&](const std::string& more) {
    return with_cluster(
        good, fmt::format("{{exec: {{apiVersion: client.authentication.k8s.io/v1{}}}}}", more));
  };
  EXPECT_THAT(with_exec(""), HasSubstr("users[u].exec.command: missing"));
  EXPECT_THAT(with_exec(", command: c, interactiveMode: Always"), HasSubstr("interactiveMode"));
  EXPECT_THAT(with_exec(", command: c, args: [1]"), HasSubstr("exec.args: expected a list"));
  EXPECT_THAT(with_exec(", command: c, env: [a]"), HasSubstr("exec.env: expected a list"));
  EXPECT_THAT(with_cluster(good, "{username: a, password: b}"), HasSubstr("users[u].username"));
  EXPECT_THAT(with_cluster(good, "{client-key: k}"), HasSubstr("users[u].client-certificate"));
  EXPECT_THAT(with_cluster(good, "{client-certificate: c}"), HasSubstr("users[u].client-key"));
}

TEST_F(ConfigTest, InAPod) {
  EXPECT_EQ(inClusterConfig(folder_, "", "443").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(inClusterConfig(folder_, "10.0.0.1", "443").status().code(),
            absl::StatusCode::kFailedPrecondition);
  write("token", "t\n");
  write("ca.crt", "pem");
  write("namespace", "team\n");
  const auto config = inClusterConfig(folder_, "10.0.0.1", "443");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server, "https://10.0.0.1:443");
  EXPECT_EQ(config->ns, "team");
  EXPECT_EQ(readSecret(config->token).value(), "t\n");
  const auto six = inClusterConfig(folder_, "fd00:10::1", "6443");
  ASSERT_TRUE(six.ok());
  EXPECT_EQ(six->server, "https://[fd00:10::1]:6443");
}

TEST(ParseServer, TakesApart) {
  const auto parts = [](std::string_view url) {
    const auto address = parseServer(url);
    if (!address.ok()) return std::string("refused");
    return fmt::format("{} {} {} {}", address->tls, address->host, address->port, address->path);
  };
  EXPECT_EQ(parts("https://h"), "true h 443 ");
  EXPECT_EQ(parts("https://h:6443/"), "true h 6443 ");
  EXPECT_EQ(parts("https://h/k8s/c-1/"), "true h 443 /k8s/c-1");
  EXPECT_EQ(parts("https://[fd00::1]:6443/x"), "true fd00::1 6443 /x");
  EXPECT_EQ(parts("https://[::1]"), "true ::1 443 ");
  EXPECT_EQ(parts("http://127.0.0.1:8001"), "false 127.0.0.1 8001 ");
  EXPECT_EQ(parts("http://localhost"), "false localhost 80 ");
  for (const char* url :
       {"", "h:1", "https://", "https://u@h", "https://h?x", "https://h:0", "https://h:70000",
        "https://h:a", "https://[::1", "https://[h]", "https://[::1]x", "http://10.0.0.1",
        "http://127.evil.test", "https://h:1 "}) {
    EXPECT_EQ(parts(url), "refused") << url;
  }
}

}  // namespace
}  // namespace trainyard::control
