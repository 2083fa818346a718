// What two ranks say to each other before data, as state machines over bytes: no sockets.
//
//   sender                                   receiver
//   Hello: version, nonce            ->
//                                    <-      Challenge: version, nonce, proof
//   Intro: proof, epoch, from, to, size ->
//                                    <-      Verdict: taken, not yet, refused; epoch, why
//
// A proof is HKDF(token; salt: both nonces; info: the side and, for the sender, its Intro).
//
// No version changes the layout of Hello and Challenge: with that of another version a receiver
// proves who it is all the same, with its version in the info, and ends the conversation. So the
// sender knows whether it is a rank of its own job that speaks the other version, which is final,
// or a stranger, who gives the address up again. The receiver never learns who the sender is: what
// it may say to a user is what it hears where it is the sender itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "runtime/transport/frame.h"

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
  std::string& outgoing() { return outgoing_; }
  // PERMISSION_DENIED: the peer does not know the token, whatever version it speaks.
  // FAILED_PRECONDITION: it does, and speaks another version, or refuses, with its reason.
  // DATA_LOSS: not this protocol. Takes exactly what it needs: data follow later.
  StatusOr<Answer> take(std::string_view bytes);
  // How many bytes it needs next.
  std::size_t needs() const;
  std::uint64_t peerEpoch() const { return peer_epoch_; }  // after kNotYet

 private:
  const Self& self_;
  const int peer_;
  const std::string nonce_;
  std::string outgoing_;
  std::string incoming_;
  bool challenged_ = false;
  std::uint64_t peer_epoch_ = 0;
};

class ReceiverHandshake {
 public:
  explicit ReceiverHandshake(const Self& self);
  std::string& outgoing() { return outgoing_; }
  // The sender's rank once it is taken (its verdict is then in outgoing()); nothing while pending
  // or after a refusal that it should hear (finished()). FAILED_PRECONDITION: it knows the token
  // but does not belong here, `why` as it is told. Others: a stranger; UNIMPLEMENTED one with
  // another version, who may be a rank of this job and should hear what is in outgoing().
  StatusOr<std::optional<int>> take(std::string_view bytes);
  std::size_t needs() const;
  bool finished() const { return finished_; }

 private:
  StatusOr<std::optional<int>> judge();
  void answer(int verdict, std::string_view why);

  const Self& self_;
  const std::string nonce_;
  std::string peer_nonce_;
  std::string outgoing_;
  std::string incoming_;
  bool finished_ = false;
};

}  // namespace trainyard::runtime::transport
