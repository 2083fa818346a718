#include "runtime/transport/handshake.h"

#include <algorithm>
#include <cstring>

#include "base/security/constant_time.h"
#include "base/security/hkdf.h"
#include "base/security/random.h"
#include "fmt/format.h"
#include "runtime/transport/frame.h"

namespace trainyard::runtime::transport {
namespace {

constexpr std::string_view kMagic = "TYMESH";
constexpr std::size_t kNonce = 32;  // hexadecimal digits
constexpr std::size_t kProof = 32;
constexpr std::size_t kPreamble = kMagic.size() + 2;  // magic, version
constexpr std::size_t kHello = kPreamble + kNonce;
constexpr std::size_t kChallenge = kPreamble + kNonce + kProof;
constexpr std::size_t kIntroFields = 8 + 3 * 4;  // epoch, from, to, size
constexpr std::size_t kIntro = kProof + kIntroFields;
constexpr std::size_t kMostOfReason = 160;
constexpr std::size_t kVerdict = 4 + 8 + kMostOfReason;  // verdict, epoch, text padded with zeros

enum Verdict { kTaken = 1, kNotYet = 2, kRefused = 3 };

template <typename T>
void append(std::string& to, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  to.append(bytes, sizeof(T));
}
template <typename T>
T read(std::string_view from, std::size_t at) {
  T value;
  std::memcpy(&value, from.data() + at, sizeof(T));
  return value;
}

std::string preamble(const Self& self) {
  std::string text(kMagic);
  append(text, self.version);
  return text;
}

// That of whoever sent this Hello or Challenge.
StatusOr<std::uint16_t> versionIn(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("not a rank of a Trainyard job");
  }
  return read<std::uint16_t>(bytes, kMagic.size());
}

std::string difference(std::uint16_t version, const Self& self) {
  return fmt::format("speaks protocol version {}; this is {}", version, self.version);
}

std::string proof(const Self& self, std::string_view sender_nonce, std::string_view receiver_nonce,
                  std::string_view side) {
  return hkdfSha256(self.token, fmt::format("{}{}", sender_nonce, receiver_nonce),
                    fmt::format("trainyard transport: {}", side), kProof);
}

// The side of a receiver that speaks `version`, towards a sender that does not. With the version in
// it nobody can pass on another receiver's proof as that of another version.
std::string receiverOf(std::uint16_t version) {
  return fmt::format("receiver of version {}", version);
}

}  // namespace

SenderHandshake::SenderHandshake(const Self& self, int peer)
    : self_(self), peer_(peer), nonce_(randomHex(kNonce / 2)) {
  outgoing_ = preamble(self) + nonce_;
}

std::size_t SenderHandshake::needs() const {
  return (challenged_ ? kVerdict : kChallenge) - incoming_.size();
}

StatusOr<SenderHandshake::Answer> SenderHandshake::take(std::string_view bytes) {
  incoming_ += bytes;
  if (needs() > 0) return Answer::kPending;
  const std::string got = std::exchange(incoming_, {});
  if (!challenged_) {
    TY_ASSIGN_OR_RETURN(const std::uint16_t version, versionIn(got));
    const bool same = version == self_.version;
    const std::string peer_nonce = got.substr(kPreamble, kNonce);
    const std::string_view theirs = std::string_view(got).substr(kPreamble + kNonce);
    const bool proved = equalInConstantTime(
        theirs, proof(self_, nonce_, peer_nonce, same ? "receiver" : receiverOf(version)));
    if (!proved && same) return absl::PermissionDeniedError("does not know the job's token");
    if (!proved) {
      return absl::PermissionDeniedError(difference(version, self_) +
                                         ", and does not prove that it knows the job's token");
    }
    if (!same) return absl::FailedPreconditionError(difference(version, self_));
    std::string fields;
    append(fields, self_.epoch);
    append(fields, static_cast<std::int32_t>(self_.rank));
    append(fields, static_cast<std::int32_t>(peer_));
    append(fields, static_cast<std::int32_t>(self_.size));
    outgoing_ = proof(self_, nonce_, peer_nonce, "sender" + fields) + fields;
    challenged_ = true;
    return Answer::kPending;
  }
  const auto verdict = read<std::uint32_t>(got, 0);
  peer_epoch_ = read<std::uint64_t>(got, 4);
  if (verdict == kTaken) return Answer::kTaken;
  if (verdict == kNotYet) return Answer::kNotYet;
  const std::string_view why = std::string_view(got).substr(12);
  return absl::FailedPreconditionError(std::string(why.substr(0, why.find('\0'))));
}

ReceiverHandshake::ReceiverHandshake(const Self& self)
    : self_(self), nonce_(randomHex(kNonce / 2)) {}

std::size_t ReceiverHandshake::needs() const {
  return (peer_nonce_.empty() ? kHello : kIntro) - incoming_.size();
}

StatusOr<std::optional<int>> ReceiverHandshake::take(std::string_view bytes) {
  incoming_ += bytes;
  // A stranger is told nothing: what does not begin as it must is not answered.
  const std::size_t begin = std::min(incoming_.size(), kMagic.size());
  if (peer_nonce_.empty() && incoming_.compare(0, begin, kMagic, 0, begin) != 0) {
    return absl::DataLossError("not a rank of a Trainyard job");
  }
  if (needs() > 0) return std::nullopt;
  if (!peer_nonce_.empty()) return judge();
  const std::string got = std::exchange(incoming_, {});
  TY_ASSIGN_OR_RETURN(const std::uint16_t version, versionIn(got));
  const bool same = version == self_.version;
  const std::string peer_nonce = got.substr(kPreamble, kNonce);
  outgoing_ = preamble(self_) + nonce_ +
              proof(self_, peer_nonce, nonce_, same ? "receiver" : receiverOf(self_.version));
  if (!same) return absl::UnimplementedError(difference(version, self_));
  peer_nonce_ = peer_nonce;
  return std::nullopt;
}

StatusOr<std::optional<int>> ReceiverHandshake::judge() {
  const std::string got = std::exchange(incoming_, {});
  const std::string fields = got.substr(kProof);
  if (!equalInConstantTime(std::string_view(got).substr(0, kProof),
                           proof(self_, peer_nonce_, nonce_, "sender" + fields))) {
    return absl::PermissionDeniedError("does not know the job's token");
  }
  finished_ = true;
  const auto epoch = read<std::uint64_t>(fields, 0);
  const auto from = read<std::int32_t>(fields, 8);
  const auto to = read<std::int32_t>(fields, 12);
  const auto size = read<std::int32_t>(fields, 16);
  std::string why;
  if (epoch > self_.epoch) {
    answer(kNotYet, "");
    return std::nullopt;
  }
  if (epoch < self_.epoch) {
    why = fmt::format("rank {} forms epoch {}, rank {} epoch {}", from, epoch, self_.rank,
                      self_.epoch);
    // Left over from before; it is told, and this group goes on without it.
    answer(kRefused, why);
    return std::nullopt;
  }
  if (size != self_.size || to != self_.rank || from < 0 || from >= size || from == self_.rank) {
    why = fmt::format("rank {} of {} looks for rank {}; this is rank {} of {}", from, size, to,
                      self_.rank, self_.size);
    answer(kRefused, why);
    return absl::FailedPreconditionError(why);
  }
  answer(kTaken, "");
  return from;
}

void ReceiverHandshake::answer(int verdict, std::string_view why) {
  outgoing_.clear();
  append(outgoing_, static_cast<std::uint32_t>(verdict));
  append(outgoing_, self_.epoch);
  outgoing_ += why.substr(0, kMostOfReason);
  outgoing_.resize(kVerdict, '\0');
}

}  // namespace trainyard::runtime::transport
