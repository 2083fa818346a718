// Where an apiserver is and who we are to it: from a kubeconfig file or from within a pod.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "base/http/proxy.h"
#include "operator/kube/exec_user.h"

namespace trainyard::control {

// Bytes that stand in a configuration or in a file beside it. A file is read again while we run,
// since certificates and tokens are replaced in place. Both empty: there is none.
struct KubeSecret {
  std::string value;           // decoded; wins over the file
  std::filesystem::path file;  // absolute
  bool empty() const { return value.empty() && file.empty(); }
};
// The value, or the file's content now; empty where there is none. Errors name the file.
StatusOr<std::string> readSecret(const KubeSecret& secret);

struct KubeConfig {
  std::string server;      // "https://host:port", with a path below which the API is, if any
  KubeSecret ca;           // PEM; none: the system's certificate authorities
  KubeSecret client_cert;  // PEM
  KubeSecret client_key;   // PEM
  KubeSecret token;        // a bearer token
  // A program that says who we are, instead of the above; null: none. Copies share it, and so what
  // it said last.
  std::shared_ptr<ExecUser> exec;
  std::string tls_server_name;  // the name that the server's certificate is for; "": the URL's host
  std::optional<ProxyAddress> proxy;
  std::string ns = "default";  // where a user means no namespace
};

// The cluster and user of a context of kubeconfig files; `context` "": the current one. `path` may
// be a list with colons, as in $KUBECONFIG: of doubled names the first counts, and files of a list
// that are not there are left out. INVALID_ARGUMENT names file and field, also for what we refuse
// or cannot do: insecure-skip-tls-verify, plain http beyond this machine, proxies of another kind
// than http, users with auth-provider, username or impersonation. NOT_FOUND without a file. Runs no
// program.
StatusOr<KubeConfig> loadKubeconfig(std::string_view path, std::string_view context);

// Of the pod that we are in: service account files in `directory` (normally
// kInClusterDirectory); `host` and `port` are KUBERNETES_SERVICE_HOST and _PORT.
// FAILED_PRECONDITION when host, port or the files are missing: we are not in a pod.
inline constexpr std::string_view kInClusterDirectory =
    "/var/run/secrets/kubernetes.io/serviceaccount";
StatusOr<KubeConfig> inClusterConfig(const std::filesystem::path& directory, std::string_view host,
                                     std::string_view port);

// Parts of KubeConfig::server.
struct ServerAddress {
  bool tls = true;
  std::string host;  // an IPv6 literal without brackets
  int port = 443;
  std::string path;  // "" or "/prefix"
};
// INVALID_ARGUMENT for anything but http and https URLs without user, query and fragment.
StatusOr<ServerAddress> parseServer(std::string_view url);

}  // namespace trainyard::control
