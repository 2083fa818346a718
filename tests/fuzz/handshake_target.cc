// Two ranks that shake hands, and somebody between them. The input says who they are and what
// becomes of each of the four messages. Whatever it is: nobody is taken who does not know the
// token, or over whose Hello, Challenge or Intro somebody else had a say.
#include <array>

#include "base/core/check.h"
#include "runtime/transport/handshake.h"
#include "tests/fuzz/meddler.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

using runtime::transport::ReceiverHandshake;
using runtime::transport::Self;
using runtime::transport::SenderHandshake;

class Meeting {
 public:
  explicit Meeting(Choices& choices)
      : choices_(choices), who_(choices.byte()), sizes_(choices.byte()) {
    sender_self_ = {0, 2, 5, "the job's token"};
    receiver_self_ = {1, 2, 5, (who_ & 1) != 0 ? "another token" : "the job's token"};
    if ((who_ & 2) != 0) receiver_self_.version = 2;
    sender_self_.epoch += (who_ >> 2) & 3;
    receiver_self_.epoch += (who_ >> 4) & 3;
    sender_self_.rank = (sizes_ & 3) - 1;
    sender_self_.size = 1 + ((sizes_ >> 2) & 3);
    peer_ = (sizes_ >> 4) & 3;
    piece_ = (who_ & 64) != 0 ? 1 : 1000;
  }

  void run() {
    SenderHandshake sender(sender_self_, peer_);
    ReceiverHandshake receiver(receiver_self_);
    for (int turn = 0; turn < 2; ++turn) {
      if (!toReceiver(sender, receiver)) return;
      if (!toSender(receiver, sender)) return;
    }
  }

 private:
  bool toReceiver(SenderHandshake& sender, ReceiverHandshake& receiver) {
    std::string_view left = note(sender.outgoing(), true);
    while (!left.empty() && !receiver.finished()) {
      const std::size_t n = std::min({receiver.needs(), piece_, left.size()});
      TY_CHECK(n > 0, "who is not finished needs something");
      const auto taken = receiver.take(left.substr(0, n));
      left.remove_prefix(n);
      if (!taken.ok()) {
        checkReceived(taken.status());
        return receiver.finished() || absl::IsUnimplemented(taken.status());
      }
      if (*taken) {
        TY_CHECK(honest() && receiver.finished(), "only a rank of the job is taken");
        TY_CHECK(**taken == sender_self_.rank && sender_self_.size == receiver_self_.size &&
                     peer_ == receiver_self_.rank && sender_self_.epoch == receiver_self_.epoch,
                 "and of this group");
      }
    }
    return true;
  }

  void checkReceived(const Status& status) const {
    if (absl::IsFailedPrecondition(status)) {
      TY_CHECK(honest(), "only what is proved ends a group");
      return;
    }
    TY_CHECK(absl::IsDataLoss(status) || absl::IsPermissionDenied(status) ||
                 absl::IsUnimplemented(status),
             "the others are strangers");
  }

  bool toSender(ReceiverHandshake& receiver, SenderHandshake& sender) {
    const bool verdict = receiver.finished();
    std::string_view left = note(receiver.outgoing(), !verdict);
    while (!left.empty()) {
      const std::size_t n = std::min({sender.needs(), piece_, left.size()});
      TY_CHECK(n > 0, "who is pending needs something");
      const auto answer = sender.take(left.substr(0, n));
      left.remove_prefix(n);
      if (!answer.ok()) {
        checkAnswered(answer.status(), verdict);
        return false;
      }
      if (*answer == SenderHandshake::Answer::kPending) continue;
      TY_CHECK(verdict && honest(), "a verdict comes from a rank of the job");
      return false;
    }
    return true;
  }

  void checkAnswered(const Status& status, bool verdict) const {
    if (!absl::IsFailedPrecondition(status)) {
      TY_CHECK(absl::IsDataLoss(status) || absl::IsPermissionDenied(status), "a stranger");
      return;
    }
    TY_CHECK(sameToken(), "only who knows the token ends a group");
    // Of a Hello with a changed version, too, a receiver says the truth about its own.
    TY_CHECK(verdict ? honest() : !sameVersion(), "only what is proved ends a group");
  }

  // What arrives of `message`; `proved`: by a proof that follows.
  std::string_view note(std::string& message, bool proved) {
    const std::string sent = std::exchange(message, {});
    arrived_ = meddledWith(sent, choices_);
    meddled_ = meddled_ || (proved && arrived_ != sent);
    return arrived_;
  }
  bool sameToken() const { return sender_self_.token == receiver_self_.token; }
  bool sameVersion() const { return sender_self_.version == receiver_self_.version; }
  bool honest() const { return sameToken() && sameVersion() && !meddled_; }

  Choices& choices_;
  const std::uint8_t who_;
  const std::uint8_t sizes_;
  Self sender_self_;
  Self receiver_self_;
  int peer_ = 0;
  std::size_t piece_ = 0;
  std::string arrived_;
  bool meddled_ = false;
};

}  // namespace

void runHandshake(std::string_view input) {
  Choices choices(input);
  Meeting(choices).run();
}

std::vector<std::string> handshakeSeeds() {
  constexpr char kGroup = 1 | 1 << 2 | 1 << 4;  // rank 0 of 2 looks for rank 1
  std::vector<std::string> seeds = {""};
  for (const int who : {0, 1, 2, 3, 4, 16, 64}) {
    seeds.push_back({static_cast<char>(who), kGroup});
    for (char at = 0; at < 4; ++at) {
      std::string fates(4, static_cast<char>(kPassed));
      const auto at_index = static_cast<std::size_t>(at);
      seeds.push_back(std::string{static_cast<char>(who), kGroup} + fates.substr(0, at_index) +
                      static_cast<char>(kChanged) + "\x06\x03" + fates.substr(at_index));
    }
  }
  // Each is told that the other speaks its own version.
  const std::string as_other{static_cast<char>(kChanged), '\x06', '\x03'};
  seeds.push_back(std::string{'\2', kGroup} + as_other + as_other);
  for (const char sizes : {'\0', '\5', '\x26', '\x1d', '\x11'}) seeds.push_back({'\0', sizes});
  seeds.push_back(std::string{'\0', kGroup, static_cast<char>(kReplaced)} + "GET / HTTP/1.1\r\n");
  seeds.push_back({'\0', kGroup, static_cast<char>(kCutShort), '\3'});
  return seeds;
}

}  // namespace trainyard::fuzz
