#include "operator/kube/exec_user.h"

#include <poll.h>

#include <csignal>

#include "base/core/rfc3339.h"
#include "base/core/strings.h"
#include "base/json/members.h"
#include "base/process/child_process.h"
#include "base/process/pipe.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::control {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxAnswer = std::size_t{1} << 20;

// What the program is told by its environment.
std::string execInfo(const ExecPlugin& plugin) {
  Json info = {{"apiVersion", plugin.api_version},
               {"kind", "ExecCredential"},
               {"spec", {{"interactive", false}}}};
  if (!plugin.cluster.empty()) {
    info["spec"]["cluster"] = Json::parse(plugin.cluster, nullptr, /*allow_exceptions=*/false);
  }
  return info.dump();
}

SpawnOptions spawnOptions(const ExecPlugin& plugin) {
  SpawnOptions spawn;
  spawn.argv = {plugin.command};
  spawn.argv.insert(spawn.argv.end(), plugin.args.begin(), plugin.args.end());
  for (const auto& [name, value] : plugin.env) spawn.more_env.push_back(name + "=" + value);
  spawn.more_env.push_back("KUBERNETES_EXEC_INFO=" + execInfo(plugin));
  spawn.inherit_error = true;
  spawn.new_process_group = true;  // what it starts itself hangs with it
  spawn.die_with_spawning_thread = true;
  return spawn;
}

// The end of the child; CANCELLED by `stop`, DEADLINE_EXCEEDED at `deadline`.
StatusOr<ExitState> waitFor(ChildProcess& child, TimePoint deadline, const std::stop_token& stop) {
  TY_ASSIGN_OR_RETURN(const WakeUp stopped, WakeUp::create());
  const std::stop_callback wake(stop, [&stopped] { stopped.wake(); });
  if (child.pidFd() >= 0) {
    pollfd fds[] = {{child.pidFd(), POLLIN, 0}, {stopped.fd(), POLLIN, 0}};
    pollUntil(fds, deadline);
  }
  if (stop.stop_requested()) return absl::CancelledError("stopped");
  return child.wait(deadline);
}

}  // namespace

StatusOr<ExecCredential> parseExecCredential(std::string_view text, std::string_view api_version) {
  const Json answer = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto wrong = [](std::string_view what) {
    return absl::UnauthenticatedError(fmt::format("its answer: {}", what));
  };
  if (!answer.is_object()) return wrong("expected a JSON object");
  if (textAt(answer, "kind") != "ExecCredential") return wrong("kind: expected ExecCredential");
  if (textAt(answer, "apiVersion") != api_version) {
    return wrong(fmt::format("apiVersion: expected {}", api_version));
  }
  const Json& status = member(answer, "status");
  if (!status.is_object()) return wrong("status: missing");
  ExecCredential credential;
  credential.token = textAt(status, "token");
  credential.cert = textAt(status, "clientCertificateData");
  credential.key = textAt(status, "clientKeyData");
  if (credential.cert.empty() != credential.key.empty()) {
    return wrong("status: clientCertificateData and clientKeyData go together");
  }
  if (credential.token.empty() && credential.cert.empty()) {
    return wrong("status: neither a token nor a client certificate");
  }
  const std::string expires = textAt(status, "expirationTimestamp");
  if (!expires.empty()) {
    credential.expires = parseRfc3339(expires);
    if (*credential.expires == 0) return wrong("status.expirationTimestamp: expected a time");
  }
  return credential;
}

ExecUser::ExecUser(ExecPlugin plugin, Duration limit) : plugin_(std::move(plugin)), limit_(limit) {}

StatusOr<ExecCredential> ExecUser::credential(const Clock& clock, const std::stop_token& stop) {
  const std::lock_guard lock(mutex_);
  const bool holds = held_ && (!held_->expires || clock.unixMillis() < *held_->expires);
  if (holds) return *held_;
  const auto place = [this](const Status& status) {
    return annotate(status, fmt::format("{}: {}", plugin_.place, plugin_.command));
  };
  const StatusOr<std::string> answer = run(stop);
  if (!answer.ok()) return place(answer.status());
  StatusOr<ExecCredential> given = parseExecCredential(*answer, plugin_.api_version);
  if (!given.ok()) return place(given.status());
  given->issue = ++issued_;
  held_ = *given;
  return given;
}

void ExecUser::refuse(std::uint64_t issue) {
  const std::lock_guard lock(mutex_);
  if (held_ && held_->issue == issue) held_.reset();
}

StatusOr<std::string> ExecUser::run(const std::stop_token& stop) const {
  std::mutex mutex;
  std::string text;
  SpawnOptions spawn = spawnOptions(plugin_);
  spawn.on_line = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    if (text.size() < kMaxAnswer) text.append(line).append("\n");
  };
  StatusOr<ExitState> exit = absl::UnknownError("");
  {
    auto child = ChildProcess::spawn(spawn);
    if (!child.ok()) {
      const std::string hint = plugin_.install_hint.empty() ? "" : "; " + plugin_.install_hint;
      return absl::UnauthenticatedError(std::string(child.status().message()) + hint);
    }
    exit = waitFor(*child, systemClock().now() + limit_, stop);
    if (!exit.ok()) (void)child->signalGroup(SIGKILL);
  }  // all lines are read
  if (absl::IsCancelled(exit.status())) return exit.status();
  if (absl::IsDeadlineExceeded(exit.status())) {
    return absl::UnauthenticatedError(
        fmt::format("it takes longer than {:.0f} s", toSeconds(limit_)));
  }
  if (!exit.ok()) return absl::UnauthenticatedError(exit.status().message());
  if (*exit != ExitState{}) return absl::UnauthenticatedError(toString(*exit));
  return text;
}

}  // namespace trainyard::control
