// How two processes of a job prove to each other that they know its secret, before data; as state
// machines over bytes: no sockets.
//
//   sender                                   receiver
//   Hello: magic, version, nonce     ->
//                                    <-      Challenge: magic, version, nonce, proof
//   Intro: proof, who the sender is  ->
//                                    <-      Verdict: taken, not yet, refused; a number, why
//
// A proof is HKDF(secret; salt: both nonces; info: the side and, for the sender, its Intro): the
// secret is never sent, and what somebody has heard of one connection proves nothing on another.
//
// No version changes the layout of Hello and Challenge: with that of another version a receiver
// proves who it is all the same, with its version in the info, and ends the conversation. So the
// sender knows whether it is a process of its own job that speaks the other version, which is
// final, or a stranger, who gives the address up again. The receiver never learns who the sender
// is: what it may say to a user is what it hears where it is the sender itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/core/status.h"

namespace trainyard::runtime::transport {

// What both sides have in common.
struct ProofTerms {
  std::string_view magic;    // 6 characters
  std::string_view purpose;  // of the secret: keeps the proofs of two protocols apart
  std::string_view kin;      // "a rank of a Trainyard job": who speaks this protocol
  std::uint16_t version = 1;
  std::string secret;
};

struct Verdict {
  enum class Kind : std::uint32_t { kTaken = 1, kNotYet = 2, kRefused = 3 };
  Kind kind = Kind::kRefused;
  std::uint64_t number = 0;  // as the protocol has it
  std::string why = {};      // at most 160 characters arrive
};

// The sender's side. `take()` gets the peer's bytes as they arrive.
class SenderProof {
 public:
  // `terms` must outlive it.
  SenderProof(const ProofTerms& terms, std::string intro);

  // What to send now; empty it when sent.
  std::string& outgoing() { return outgoing_; }
  // How many bytes it needs next.
  std::size_t needs() const;
  // Nothing while pending. PERMISSION_DENIED: the peer does not know the secret, whatever version
  // it speaks. FAILED_PRECONDITION: it does, and speaks another version. DATA_LOSS: not this
  // protocol. Takes exactly what it needs: data follow later.
  StatusOr<std::optional<Verdict>> take(std::string_view bytes);
  // A key for this connection alone, the same on both sides; once the peer has proved itself.
  std::string connectionKey() const;

 private:
  const ProofTerms& terms_;
  const std::string intro_;
  const std::string nonce_;
  std::string peer_nonce_;  // empty: not challenged yet
  std::string outgoing_;
  std::string incoming_;
};

class ReceiverProof {
 public:
  // An Intro of this protocol has `intro_bytes`.
  ReceiverProof(const ProofTerms& terms, std::size_t intro_bytes);

  std::string& outgoing() { return outgoing_; }
  std::size_t needs() const;
  // The sender's Intro once it is proved; then answer() follows. Nothing while pending. Errors: a
  // stranger (PERMISSION_DENIED, DATA_LOSS), or UNIMPLEMENTED: somebody with another version, who
  // may be of this job and should hear what is in outgoing().
  StatusOr<std::optional<std::string>> take(std::string_view bytes);
  void answer(const Verdict& verdict);
  std::string connectionKey() const;

 private:
  const ProofTerms& terms_;
  const std::size_t intro_bytes_;
  const std::string nonce_;
  std::string peer_nonce_;
  std::string outgoing_;
  std::string incoming_;
};

}  // namespace trainyard::runtime::transport
