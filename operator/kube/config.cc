#include "operator/kube/config.h"

#include <arpa/inet.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/core/strings.h"
#include "base/json/members.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"
#include "operator/job/yaml_json.h"

namespace trainyard::control {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr std::size_t kMaxFile = std::size_t{1} << 20;

bool isLoopback(const std::string& host) {
  in_addr bytes;
  if (::inet_pton(AF_INET, host.c_str(), &bytes) == 1) return ntohl(bytes.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

bool isIpv6(const std::string& host) {
  in6_addr bytes;
  return ::inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

// A part of a kubeconfig and where it came from.
struct Part {
  std::string place;  // "FILE: users[admin]"
  fs::path folder;
  Json value = Json::object();
};

Status wrong(const Part& part, std::string_view field, std::string_view message) {
  return invalidInput(fmt::format("{}.{}", part.place, field), message);
}

StatusOr<std::string> textOf(const Part& part, const char* field) {
  const auto it = part.value.find(field);
  if (it == part.value.end() || it->is_null()) return std::string();
  if (!it->is_string()) return wrong(part, field, "expected text");
  return it->get<std::string>();
}

// The pair `name`-data (base64) and `name` (a path, relative to the file's folder).
StatusOr<KubeSecret> secretOf(const Part& part, const std::string& name) {
  KubeSecret secret;
  TY_ASSIGN_OR_RETURN(const std::string data, textOf(part, (name + "-data").c_str()));
  TY_ASSIGN_OR_RETURN(const std::string path, textOf(part, name.c_str()));
  if (!data.empty()) {
    if (!absl::Base64Unescape(data, &secret.value)) {
      return wrong(part, name + "-data", "expected base64");
    }
  } else if (!path.empty()) {
    secret.file = part.folder / path;
  }
  return secret;
}

// What the files say, put together: of doubled names the first counts.
class Kubeconfig {
 public:
  Status add(const fs::path& path);
  StatusOr<Part> find(std::string_view list, const char* key, const std::string& name) const;
  const std::string& currentContext() const { return current_; }
  const std::string& files() const { return files_; }

 private:
  struct File {
    fs::path path;
    Json value;
  };
  std::vector<File> read_;
  std::string current_;
  std::string files_;
};

Status Kubeconfig::add(const fs::path& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(path, kMaxFile));
  TY_ASSIGN_OR_RETURN(Json value, yamlToJson(text, path.native()));
  if (value.is_null()) value = Json::object();
  if (!value.is_object()) return invalidInput(path.native(), "expected a mapping");
  const Part whole{path.native(), path.parent_path(), value};
  TY_ASSIGN_OR_RETURN(const std::string current, textOf(whole, "current-context"));
  if (current_.empty()) current_ = current;
  files_ += (files_.empty() ? "" : ":") + path.native();
  read_.push_back({path, std::move(value)});
  return absl::OkStatus();
}

StatusOr<Part> Kubeconfig::find(std::string_view list, const char* key,
                                const std::string& name) const {
  for (const File& file : read_) {
    const auto entries = file.value.find(std::string(list));
    if (entries == file.value.end() || !entries->is_array()) continue;
    for (const Json& entry : *entries) {
      if (!entry.is_object() || entry.value("name", Json()) != Json(name)) continue;
      Part part{fmt::format("{}: {}[{}]", file.path.native(), list, name),
                fs::absolute(file.path).parent_path()};
      const auto value = entry.find(key);
      if (value == entry.end() || value->is_null()) return part;
      if (!value->is_object()) return wrong(part, key, "expected a mapping");
      part.value = *value;
      return part;
    }
  }
  return invalidInput(files_, fmt::format("no '{}' among {}", name, list));
}

Status readCluster(const Part& cluster, KubeConfig* config) {
  TY_ASSIGN_OR_RETURN(config->server, textOf(cluster, "server"));
  TY_ASSIGN_OR_RETURN(config->tls_server_name, textOf(cluster, "tls-server-name"));
  TY_ASSIGN_OR_RETURN(config->ca, secretOf(cluster, "certificate-authority"));
  if (cluster.value.value("insecure-skip-tls-verify", Json()) == Json(true)) {
    return wrong(cluster, "insecure-skip-tls-verify",
                 "the server's certificate is always verified: give certificate-authority");
  }
  const StatusOr<ServerAddress> server = parseServer(config->server);
  if (!server.ok()) return wrong(cluster, "server", std::string(server.status().message()));
  TY_ASSIGN_OR_RETURN(const std::string proxy, textOf(cluster, "proxy-url"));
  if (proxy.empty()) return absl::OkStatus();
  StatusOr<ProxyAddress> address = parseProxy(proxy);
  if (!address.ok()) return wrong(cluster, "proxy-url", std::string(address.status().message()));
  if (!server->tls || isIpv6(server->host)) {
    return wrong(cluster, "proxy-url", "goes with an https server that has a name or IPv4 address");
  }
  config->proxy = *std::move(address);
  return absl::OkStatus();
}

// What a plugin with provideClusterInfo is told.
StatusOr<std::string> clusterInfo(const Part& cluster) {
  Json info = Json::object();
  for (const char* field : {"server", "tls-server-name", "proxy-url"}) {
    TY_ASSIGN_OR_RETURN(const std::string text, textOf(cluster, field));
    if (!text.empty()) info[field] = text;
  }
  TY_ASSIGN_OR_RETURN(const KubeSecret ca, secretOf(cluster, "certificate-authority"));
  TY_ASSIGN_OR_RETURN(const std::string pem, readSecret(ca));
  if (!pem.empty()) info["certificate-authority-data"] = absl::Base64Escape(pem);
  for (const Json& extension : cluster.value.value("extensions", Json::array())) {
    if (textAt(extension, "name") != "client.authentication.k8s.io/exec") continue;
    info["config"] = member(extension, "extension");
  }
  return info.dump();
}

StatusOr<std::vector<std::string>> wordsOf(const Part& part, const char* field) {
  std::vector<std::string> words;
  const Json& list = member(part.value, field);
  if (list.is_null()) return words;
  for (const Json& word : list) {
    if (!list.is_array() || !word.is_string()) return wrong(part, field, "expected a list of text");
    words.push_back(word.get<std::string>());
  }
  return words;
}

// As other clients do: a name is looked up in PATH, a path begins at the file's folder.
std::string commandOf(const Part& exec, const std::string& command) {
  return command.find('/') == std::string::npos ? command : (exec.folder / command).native();
}

Status readExec(const Part& exec, const Part& cluster, KubeConfig* config) {
  ExecPlugin plugin;
  plugin.place = exec.place;
  TY_ASSIGN_OR_RETURN(plugin.api_version, textOf(exec, "apiVersion"));
  const bool known = std::find(std::begin(kExecVersions), std::end(kExecVersions),
                               plugin.api_version) != std::end(kExecVersions);
  if (!known) {
    return wrong(exec, "apiVersion", fmt::format("expected {}", fmt::join(kExecVersions, " or ")));
  }
  TY_ASSIGN_OR_RETURN(const std::string command, textOf(exec, "command"));
  if (command.empty()) return wrong(exec, "command", "missing");
  plugin.command = commandOf(exec, command);
  TY_ASSIGN_OR_RETURN(plugin.args, wordsOf(exec, "args"));
  TY_ASSIGN_OR_RETURN(const std::string mode, textOf(exec, "interactiveMode"));
  if (mode == "Always") return wrong(exec, "interactiveMode", "a plugin cannot ask anything here");
  TY_ASSIGN_OR_RETURN(plugin.install_hint, textOf(exec, "installHint"));
  for (const Json& entry : exec.value.value("env", Json::array())) {
    const std::string name = textAt(entry, "name");
    if (name.empty()) return wrong(exec, "env", "expected a list of {name, value}");
    plugin.env.emplace_back(name, textAt(entry, "value"));
  }
  if (member(exec.value, "provideClusterInfo") == Json(true)) {
    TY_ASSIGN_OR_RETURN(plugin.cluster, clusterInfo(cluster));
  }
  config->exec = std::make_shared<ExecUser>(std::move(plugin));
  return absl::OkStatus();
}

Status readUser(const Part& user, const Part& cluster, KubeConfig* config) {
  for (const char* field : {"auth-provider", "username", "as"}) {
    if (user.value.contains(field)) {
      return wrong(user, field,
                   "not supported; use exec, a client certificate, token or tokenFile");
    }
  }
  TY_ASSIGN_OR_RETURN(config->client_cert, secretOf(user, "client-certificate"));
  TY_ASSIGN_OR_RETURN(config->client_key, secretOf(user, "client-key"));
  if (config->client_cert.empty() != config->client_key.empty()) {
    return wrong(user, config->client_cert.empty() ? "client-certificate" : "client-key",
                 "missing: certificate and key go together");
  }
  TY_ASSIGN_OR_RETURN(config->token.value, textOf(user, "token"));
  TY_ASSIGN_OR_RETURN(const std::string file, textOf(user, "tokenFile"));
  // As other clients do: a file wins, since it can be replaced.
  if (!file.empty()) config->token = {"", user.folder / file};
  const Json& exec = member(user.value, "exec");
  if (exec.is_null()) return absl::OkStatus();
  if (!exec.is_object()) return wrong(user, "exec", "expected a mapping");
  if (!config->client_cert.empty() || !config->token.empty()) {
    return wrong(user, "exec", "the user has a certificate or token already");
  }
  return readExec({user.place + ".exec", user.folder, exec}, cluster, config);
}

}  // namespace

StatusOr<std::string> readSecret(const KubeSecret& secret) {
  if (!secret.value.empty() || secret.file.empty()) return secret.value;
  auto text = readFile(secret.file, kMaxFile);
  if (text.ok()) return text;
  // Missing is wrong input here, not an object that is not there.
  return absl::InvalidArgumentError(text.status().message());
}

StatusOr<KubeConfig> loadKubeconfig(std::string_view path, std::string_view context) {
  Kubeconfig files;
  const std::vector<std::string_view> paths = split(path, ':');
  for (const std::string_view one : paths) {
    if (one.empty()) continue;
    const Status status = files.add(fs::path(one));
    const bool left_out = paths.size() > 1 && status.code() == absl::StatusCode::kNotFound;
    if (!left_out) TY_RETURN_IF_ERROR(status);
  }
  if (files.files().empty()) return absl::NotFoundError(fmt::format("no kubeconfig at '{}'", path));
  const std::string name(context.empty() ? std::string_view(files.currentContext()) : context);
  if (name.empty()) return invalidInput(files.files(), "current-context: missing; name a context");
  TY_ASSIGN_OR_RETURN(const Part chosen, files.find("contexts", "context", name));
  KubeConfig config;
  TY_ASSIGN_OR_RETURN(const std::string cluster, textOf(chosen, "cluster"));
  TY_ASSIGN_OR_RETURN(const std::string user, textOf(chosen, "user"));
  TY_ASSIGN_OR_RETURN(const std::string ns, textOf(chosen, "namespace"));
  if (!ns.empty()) config.ns = ns;
  TY_ASSIGN_OR_RETURN(const Part cluster_part, files.find("clusters", "cluster", cluster));
  TY_RETURN_IF_ERROR(readCluster(cluster_part, &config));
  if (!user.empty()) {
    TY_ASSIGN_OR_RETURN(const Part user_part, files.find("users", "user", user));
    TY_RETURN_IF_ERROR(readUser(user_part, cluster_part, &config));
  }
  return config;
}

StatusOr<KubeConfig> inClusterConfig(const fs::path& directory, std::string_view host,
                                     std::string_view port) {
  if (host.empty() || port.empty()) {
    return absl::FailedPreconditionError(
        "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
  }
  KubeConfig config;
  config.token.file = directory / "token";
  config.ca.file = directory / "ca.crt";
  for (const KubeSecret* secret : {&config.token, &config.ca}) {
    const Status readable = readSecret(*secret).status();
    if (!readable.ok()) {
      return absl::FailedPreconditionError(
          fmt::format("no service account: {}", std::string(readable.message())));
    }
  }
  const auto ns = readFile(directory / "namespace", kMaxFile);
  if (ns.ok() && !trim(*ns).empty()) config.ns = trim(*ns);
  const std::string shown =
      isIpv6(std::string(host)) ? fmt::format("[{}]", host) : std::string(host);
  config.server = fmt::format("https://{}:{}", shown, port);
  return config;
}

StatusOr<ServerAddress> parseServer(std::string_view url) {
  const auto refuse = [url](std::string_view what) {
    return absl::InvalidArgumentError(
        fmt::format("'{}': {}; expected https://HOST:PORT", url, what));
  };
  ServerAddress address;
  std::string_view rest = url;
  address.tls = rest.starts_with("https://");
  if (!address.tls && !rest.starts_with("http://")) return refuse("no https URL");
  rest.remove_prefix(address.tls ? 8 : 7);
  if (rest.find_first_of("@?# ") != std::string_view::npos) {
    return refuse("user, query and fragment are not supported");
  }
  const std::size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  if (slash != std::string_view::npos) address.path = rest.substr(slash);
  while (address.path.ends_with('/')) address.path.pop_back();
  address.port = address.tls ? 443 : 80;
  if (const char* problem = readAuthority(authority, &address.host, &address.port)) {
    return refuse(problem);
  }
  if (!address.tls && !isLoopback(address.host)) return refuse("plain http leaves this machine");
  return address;
}

}  // namespace trainyard::control
