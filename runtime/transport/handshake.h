// What two ranks say to each other before data: a mutual proof of the job's token (mutual_proof.h),
// whose Intro says epoch, from, to and size; the number of the Verdict is the receiver's epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "runtime/transport/frame.h"
#include "runtime/transport/mutual_proof.h"

namespace trainyard::runtime::transport {

// Who a side is.
struct Self {
  int rank = 0;
  int size = 0;
  std::uint64_t epoch = 0;
  std::string token;
  std::uint16_t version = kProtocolVersion;
};

// The sender's side. `take()` gets the peer's bytes as they arrive.
class SenderHandshake {
 public:
  SenderHandshake(const Self& self, int peer);

  enum class Answer { kPending, kTaken, kNotYet };
  // What to send now; empty it when sent.
  std::string& outgoing() { return proof_.outgoing(); }
  // As of SenderProof::take(), and FAILED_PRECONDITION where the peer refuses, with its reason.
  StatusOr<Answer> take(std::string_view bytes);
  // How many bytes it needs next.
  std::size_t needs() const { return proof_.needs(); }
  std::uint64_t peerEpoch() const { return peer_epoch_; }  // after kNotYet

 private:
  const ProofTerms terms_;
  SenderProof proof_;
  std::uint64_t peer_epoch_ = 0;
};

class ReceiverHandshake {
 public:
  explicit ReceiverHandshake(const Self& self);
  std::string& outgoing() { return proof_.outgoing(); }
  // The sender's rank once it is taken (its verdict is then in outgoing()); nothing while pending
  // or after a refusal that it should hear (finished()). FAILED_PRECONDITION: it knows the token
  // but does not belong here, `why` as it is told. Others as of ReceiverProof::take().
  StatusOr<std::optional<int>> take(std::string_view bytes);
  std::size_t needs() const { return proof_.needs(); }
  bool finished() const { return finished_; }

 private:
  StatusOr<std::optional<int>> judge(const std::string& intro);

  const Self& self_;
  const ProofTerms terms_;
  ReceiverProof proof_;
  bool finished_ = false;
};

}  // namespace trainyard::runtime::transport
