#include "runtime/transport/mutual_proof.h"

#include <algorithm>
#include <utility>

#include "base/core/check.h"
#include "base/security/constant_time.h"
#include "base/security/hkdf.h"
#include "base/security/random.h"
#include "fmt/format.h"
#include "runtime/transport/fixed_bytes.h"

namespace trainyard::runtime::transport {
namespace {

constexpr std::size_t kMagic = 6;
constexpr std::size_t kNonce = 32;  // hexadecimal digits
constexpr std::size_t kProof = 32;
constexpr std::size_t kPreamble = kMagic + 2;  // magic, version
constexpr std::size_t kHello = kPreamble + kNonce;
constexpr std::size_t kChallenge = kPreamble + kNonce + kProof;
constexpr std::size_t kMostOfReason = 160;
constexpr std::size_t kVerdict = 4 + 8 + kMostOfReason;  // kind, number, text padded with zeros

std::string preamble(const ProofTerms& terms) {
  TY_CHECK(terms.magic.size() == kMagic, "all magics are of one length");
  std::string text(terms.magic);
  text.resize(kPreamble);
  putAt(text, kMagic, terms.version);
  return text;
}

// That of whoever sent this Hello or Challenge.
StatusOr<std::uint16_t> versionIn(const ProofTerms& terms, const std::string& bytes) {
  if (!bytes.starts_with(terms.magic)) return absl::DataLossError(fmt::format("not {}", terms.kin));
  return getAt<std::uint16_t>(bytes, kMagic);
}

std::string difference(std::uint16_t version, const ProofTerms& terms) {
  return fmt::format("speaks protocol version {}; this is {}", version, terms.version);
}

std::string derive(const ProofTerms& terms, std::string_view sender_nonce,
                   std::string_view receiver_nonce, std::string_view side) {
  return hkdfSha256(terms.secret, fmt::format("{}{}", sender_nonce, receiver_nonce),
                    fmt::format("{}: {}", terms.purpose, side), kProof);
}

// The side of a receiver. With both versions in it, as each side has said them, nobody can pass its
// proof on as that of another version, or to a sender of another.
std::string receiverOf(std::uint16_t version, std::uint16_t senders) {
  return fmt::format("receiver of version {} to one of {}", version, senders);
}

}  // namespace

SenderProof::SenderProof(const ProofTerms& terms, std::string intro)
    : terms_(terms), intro_(std::move(intro)), nonce_(randomHex(kNonce / 2)) {
  outgoing_ = preamble(terms) + nonce_;
}

std::size_t SenderProof::needs() const {
  return (peer_nonce_.empty() ? kChallenge : kVerdict) - incoming_.size();
}

StatusOr<std::optional<Verdict>> SenderProof::take(std::string_view bytes) {
  incoming_ += bytes;
  if (needs() > 0) return std::nullopt;
  const std::string got = std::exchange(incoming_, {});
  if (peer_nonce_.empty()) {
    TY_ASSIGN_OR_RETURN(const std::uint16_t version, versionIn(terms_, got));
    const bool same = version == terms_.version;
    const std::string nonce = got.substr(kPreamble, kNonce);
    const std::string_view theirs = std::string_view(got).substr(kPreamble + kNonce);
    const bool proved = equalInConstantTime(
        theirs, derive(terms_, nonce_, nonce, receiverOf(version, terms_.version)));
    if (!proved && same) return absl::PermissionDeniedError("does not know the job's token");
    if (!proved) {
      return absl::PermissionDeniedError(difference(version, terms_) +
                                         ", and does not prove that it knows the job's token");
    }
    if (!same) return absl::FailedPreconditionError(difference(version, terms_));
    peer_nonce_ = nonce;
    outgoing_ = derive(terms_, nonce_, nonce, "sender" + intro_) + intro_;
    return std::nullopt;
  }
  Verdict verdict;
  const auto kind = getAt<std::uint32_t>(got, 0);
  if (kind == 1 || kind == 2) verdict.kind = static_cast<Verdict::Kind>(kind);
  verdict.number = getAt<std::uint64_t>(got, 4);
  const std::string_view why = std::string_view(got).substr(12);
  verdict.why = why.substr(0, why.find('\0'));
  return verdict;
}

std::string SenderProof::connectionKey() const {
  return derive(terms_, nonce_, peer_nonce_, "connection");
}

ReceiverProof::ReceiverProof(const ProofTerms& terms, std::size_t intro_bytes)
    : terms_(terms), intro_bytes_(intro_bytes), nonce_(randomHex(kNonce / 2)) {}

std::size_t ReceiverProof::needs() const {
  return (peer_nonce_.empty() ? kHello : kProof + intro_bytes_) - incoming_.size();
}

StatusOr<std::optional<std::string>> ReceiverProof::take(std::string_view bytes) {
  incoming_ += bytes;
  // A stranger is told nothing: what does not begin as it must is not answered.
  const std::size_t begin = std::min(incoming_.size(), kMagic);
  if (peer_nonce_.empty() && incoming_.compare(0, begin, terms_.magic, 0, begin) != 0) {
    return absl::DataLossError(fmt::format("not {}", terms_.kin));
  }
  if (needs() > 0) return std::nullopt;
  const std::string got = std::exchange(incoming_, {});
  if (!peer_nonce_.empty()) {
    const std::string intro = got.substr(kProof);
    if (!equalInConstantTime(std::string_view(got).substr(0, kProof),
                             derive(terms_, peer_nonce_, nonce_, "sender" + intro))) {
      return absl::PermissionDeniedError("does not know the job's token");
    }
    return intro;
  }
  TY_ASSIGN_OR_RETURN(const std::uint16_t version, versionIn(terms_, got));
  const std::string nonce = got.substr(kPreamble, kNonce);
  outgoing_ = preamble(terms_) + nonce_ +
              derive(terms_, nonce, nonce_, receiverOf(terms_.version, version));
  if (version != terms_.version) return absl::UnimplementedError(difference(version, terms_));
  peer_nonce_ = nonce;
  return std::nullopt;
}

void ReceiverProof::answer(const Verdict& verdict) {
  outgoing_.assign(kVerdict, '\0');
  putAt(outgoing_, 0, static_cast<std::uint32_t>(verdict.kind));
  putAt(outgoing_, 4, verdict.number);
  const std::string why = verdict.why.substr(0, kMostOfReason);
  outgoing_.replace(12, why.size(), why);
}

std::string ReceiverProof::connectionKey() const {
  return derive(terms_, peer_nonce_, nonce_, "connection");
}

}  // namespace trainyard::runtime::transport
