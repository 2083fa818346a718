// A connection between two processes of a job that is encrypted by TLS 1.3; both prove by the job's
// certificates who they are.
#pragma once

#include <cstdint>
#include <memory>

#include "base/core/status.h"
#include "base/process/unique_fd.h"
#include "base/security/job_keys.h"
#include "runtime/stream/stream.h"

struct ssl_ctx_st;

namespace trainyard::runtime::stream {

// Certificates, read once for all connections of a process.
class TlsContext final : public Encryption {
 public:
  // How many records a side sends before it changes its key. AES-GCM is good for 2^24.5 of a key
  // (RFC 8446, section 5.5), which at 16 KiB each are 400 GB: minutes of a fast all-reduce.
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 23;

  // INTERNAL: `identity` is none.
  static StatusOr<std::shared_ptr<const TlsContext>> make(
      const TlsIdentity& identity, std::uint64_t records_per_key = kRecordsPerKey);
  ~TlsContext() override;
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // To a server that must prove to be kRuntimeServerName.
  std::unique_ptr<Stream> client(UniqueFd socket) const override;
  // Called by somebody whose certificate the identity's ca has signed.
  std::unique_ptr<Stream> server(UniqueFd socket) const override;

 private:
  TlsContext(ssl_ctx_st* context, std::uint64_t records_per_key)
      : context_(context), records_per_key_(records_per_key) {}

  ssl_ctx_st* const context_;
  const std::uint64_t records_per_key_;
};

}  // namespace trainyard::runtime::stream
