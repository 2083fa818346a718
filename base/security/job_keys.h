// What the tasks of a job and its operator prove themselves by to each other: all of it derived
// from the operator's root secret and the job's uid, so that nothing has to be kept or read back;
// and what training processes prove themselves by among themselves, derived from the job's token.
#pragma once

#include <string>
#include <string_view>

namespace trainyard {

// PEM. Ed25519; the same for the same arguments, and valid as long as a job can last.
struct TlsIdentity {
  std::string ca;    // who signs both sides' certificates, for this job alone
  std::string cert;  // of this side
  std::string key;
};

struct JobKeys {
  std::string token;   // 64 hexadecimal digits; what the tasks' processes know and others do not
  TlsIdentity task;    // of every task's agent, as a server named kTaskServerName
  TlsIdentity client;  // of the operator; a task's certificate does not do for it
};
// Whatever address a task has.
inline constexpr std::string_view kTaskServerName = "task.trainyard.dev";

JobKeys deriveJobKeys(std::string_view root_secret, std::string_view job_uid);

// Of the training processes, which all have the same: whoever has been given the token needs
// nothing else, in a cluster, on one machine and where tasks are started by hand.
struct RuntimeKeys {
  // For control, as a server named kRuntimeServerName and as a client. Agents, whose certificates
  // another authority signs, do not take it.
  TlsIdentity control;
  // 64 hexadecimal digits; in every push and pull, which are encrypted only where the job asks for
  // it, and good for nothing else.
  std::string data;
};
inline constexpr std::string_view kRuntimeServerName = "runtime.trainyard.dev";

// The same for the same token.
RuntimeKeys deriveRuntimeKeys(std::string_view token);

// What the programs of a job that are users' own prove themselves by to each other, 64 hexadecimal
// digits: the same for the same token, of which it tells nothing, and good for nothing of ours.
std::string deriveProgramSecret(std::string_view token);

// Tells root secrets apart, and nothing of what they are: 16 hexadecimal digits.
std::string rootId(std::string_view root_secret);

}  // namespace trainyard
