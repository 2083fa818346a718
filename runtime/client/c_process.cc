// The C interface: what is of the process, and where the ranks are.
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "base/security/hkdf.h"
#include "fmt/format.h"
#include "runtime/client/addresses.h"
#include "runtime/client/errors.h"
#include "runtime/client/handles.h"
#include "runtime/client/interrupt.h"
#include "runtime/client/log_sink.h"
#include "runtime/client/meeting.h"

namespace trainyard::runtime::client {
namespace {

constexpr std::size_t kKeyBytes = 32;

LogLevel levelOf(int level) {
  if (level <= 0) return LogLevel::kDebug;
  if (level == 1) return LogLevel::kInfo;
  return level == 2 ? LogLevel::kWarning : LogLevel::kError;
}

// Owned by the caller, freed by ty_addresses_free. Null where there is no memory.
char** toTexts(const std::vector<transport::TcpAddress>& addresses) {
  auto** texts = static_cast<char**>(std::calloc(addresses.size(), sizeof(char*)));
  for (std::size_t r = 0; texts != nullptr && r < addresses.size(); ++r) {
    texts[r] = ::strdup(toText(addresses[r]).c_str());
    if (texts[r] != nullptr) continue;
    ty_addresses_free(texts, static_cast<int>(r));
    return nullptr;
  }
  return texts;
}

Status checkMeeting(const ty_meeting* meeting, const ty_listener* listener) {
  if (meeting == nullptr || meeting->bytes != sizeof(ty_meeting)) {
    return absl::InvalidArgumentError("ty_meet: a ty_meeting of another size");
  }
  if (!isAlive(listener)) return deadHandle("ty_meet: the listener is not of this process");
  if (meeting->host == nullptr || meeting->secret == nullptr || *meeting->secret == '\0') {
    return absl::InvalidArgumentError("ty_meet: host and secret must be given");
  }
  if (meeting->port < 1 || meeting->port > 65535) {
    return absl::InvalidArgumentError(fmt::format("ty_meet: port {}", meeting->port));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace trainyard::runtime::client

using namespace trainyard;                   // NOLINT: what follows is C
using namespace trainyard::runtime::client;  // NOLINT

extern "C" {

int ty_abi_version(void) {
  return TY_ABI_VERSION;
}

const char* ty_version(void) {
  return TRAINYARD_VERSION;
}

const char* ty_error(void) {
  return lastError();
}

int ty_error_rank(void) {
  return lastErrorRank();
}

void ty_set_log(ty_log_function function, void* data, int least) {
  if (function == nullptr) return setLogSink({}, levelOf(least));
  setLogSink(
      [function, data](LogLevel level, std::string_view message) {
        function(static_cast<int>(level), std::string(message).c_str(), data);
      },
      levelOf(least));
}

void ty_set_interrupt(ty_interrupt_function function, void* data) {
  setInterrupt(function, data);
}

ty_code ty_listen(const char* address, int port, ty_listener** listener) {
  if (address == nullptr || listener == nullptr || port < 0 || port > 65535) {
    return tell(
        absl::InvalidArgumentError("ty_listen: address, a port and a place for the result"));
  }
  auto made = runtime::transport::TcpListener::listen(address, static_cast<std::uint16_t>(port));
  if (!made.ok()) return tell(absl::UnavailableError(made.status().message()), Stage::kForming);
  *listener = std::make_unique<ty_listener>(std::move(*made)).release();
  (*listener)->sockets.add((*listener)->listener.fd());
  return TY_OK;
}

int ty_listener_port(const ty_listener* listener) {
  return isAlive(listener) ? listener->listener.port() : 0;
}

void ty_listener_free(ty_listener* listener) {
  if (!isAlive(listener)) return;
  const std::unique_ptr<ty_listener> owned(listener);
  owned->sockets.clear();
}

ty_code ty_meet(const ty_meeting* meeting, const ty_listener* listener, char*** addresses) {
  if (const Status status = checkMeeting(meeting, listener); !status.ok()) return tell(status);
  MeetingOptions options;
  options.rank = meeting->rank;
  options.size = meeting->size;
  options.host = meeting->host;
  options.port = static_cast<std::uint16_t>(meeting->port);
  options.listens_at = listener->listener.port();
  options.secret = meeting->secret;
  options.timeout = durationOf(meeting->seconds);
  options.cancelled = isInterrupted;
  const auto met = meet(options);
  if (!met.ok()) return tell(met.status(), Stage::kForming);
  *addresses = toTexts(*met);
  if (*addresses == nullptr) return tell(absl::ResourceExhaustedError("ty_meet: no memory"));
  return TY_OK;
}

void ty_addresses_free(char** addresses, int size) {
  if (addresses == nullptr) return;
  for (int r = 0; r < size; ++r) std::free(addresses[r]);
  std::free(addresses);
}

ty_code ty_derive(const char* secret, const char* purpose, char text[65]) {
  if (secret == nullptr || purpose == nullptr) {
    return tell(absl::InvalidArgumentError("ty_derive: a secret and a purpose"));
  }
  const std::string key =
      hkdfSha256(secret, "", fmt::format("trainyard program: {}", purpose), kKeyBytes);
  const std::string digits = absl::BytesToHexString(key);
  digits.copy(text, 2 * kKeyBytes);
  text[2 * kKeyBytes] = '\0';
  return TY_OK;
}

}  // extern "C"
