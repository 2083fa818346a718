// A user of a kubeconfig whom a program knows (`exec`), as those of most managed clusters: it is
// run, and says on its standard output by which token or client certificate we are known, and until
// when (client.authentication.k8s.io).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"

namespace trainyard::control {

struct ExecPlugin {
  std::string place;        // of it in the kubeconfig, for messages
  std::string api_version;  // one of kExecVersions
  std::string command;      // a path, or a name that is looked up in PATH
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;  // beside ours
  std::string install_hint;                              // for people, where there is no program
  std::string cluster;  // JSON, what it is told of the cluster; "": nothing
};
// What tools write into kubeconfigs; they differ in their names only.
inline constexpr std::string_view kExecVersions[] = {"client.authentication.k8s.io/v1",
                                                     "client.authentication.k8s.io/v1beta1"};

// At least one of token and certificate is there.
struct ExecCredential {
  std::string token;
  std::string cert;                   // PEM
  std::string key;                    // PEM
  std::optional<UnixMillis> expires;  // nothing: when the server does not accept it any more
  std::uint64_t issue = 0;            // counts what this user was given, from 1
};

// What the program has written, an object of kind ExecCredential and of that version. The error
// names the field, and repeats nothing of it.
StatusOr<ExecCredential> parseExecCredential(std::string_view text, std::string_view api_version);

// Keeps what the program said until it expires. Thread-safe: one caller runs the program, the
// others wait for it. It cannot ask anybody anything: it has no standard input; what it writes to
// its standard error goes to ours.
class ExecUser {
 public:
  // The program may take so long.
  static constexpr Duration kLimit = std::chrono::seconds(60);

  explicit ExecUser(ExecPlugin plugin, Duration limit = kLimit);

  // Errors: UNAUTHENTICATED, the program cannot be run, fails, takes too long or says nothing that
  // is a credential; CANCELLED by `stop`.
  StatusOr<ExecCredential> credential(const Clock& clock, const std::stop_token& stop);
  // The server did not accept that issue: the next credential() is another one.
  void refuse(std::uint64_t issue);

  const ExecPlugin& plugin() const { return plugin_; }

 private:
  StatusOr<std::string> run(const std::stop_token& stop) const;

  const ExecPlugin plugin_;
  const Duration limit_;
  std::mutex mutex_;
  std::uint64_t issued_ = 0;
  std::optional<ExecCredential> held_;
};

}  // namespace trainyard::control
