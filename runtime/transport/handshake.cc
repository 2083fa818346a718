#include "runtime/transport/handshake.h"

#include "fmt/format.h"
#include "runtime/transport/fixed_bytes.h"

namespace trainyard::runtime::transport {
namespace {

constexpr std::size_t kIntro = 8 + 3 * 4;  // epoch, from, to, size

ProofTerms termsOf(const Self& self) {
  return {"TYMESH", "trainyard transport", "a rank of a Trainyard job", self.version, self.token};
}

std::string introOf(const Self& self, int peer) {
  std::string intro(kIntro, '\0');
  putAt(intro, 0, self.epoch);
  putAt(intro, 8, static_cast<std::int32_t>(self.rank));
  putAt(intro, 12, static_cast<std::int32_t>(peer));
  putAt(intro, 16, static_cast<std::int32_t>(self.size));
  return intro;
}

}  // namespace

SenderHandshake::SenderHandshake(const Self& self, int peer)
    : terms_(termsOf(self)), proof_(terms_, introOf(self, peer)) {}

StatusOr<SenderHandshake::Answer> SenderHandshake::take(std::string_view bytes) {
  TY_ASSIGN_OR_RETURN(const std::optional<Verdict> verdict, proof_.take(bytes));
  if (!verdict) return Answer::kPending;
  peer_epoch_ = verdict->number;
  if (verdict->kind == Verdict::Kind::kTaken) return Answer::kTaken;
  if (verdict->kind == Verdict::Kind::kNotYet) return Answer::kNotYet;
  return absl::FailedPreconditionError(verdict->why);
}

ReceiverHandshake::ReceiverHandshake(const Self& self)
    : self_(self), terms_(termsOf(self)), proof_(terms_, kIntro) {}

StatusOr<std::optional<int>> ReceiverHandshake::take(std::string_view bytes) {
  TY_ASSIGN_OR_RETURN(const std::optional<std::string> intro, proof_.take(bytes));
  if (!intro) return std::nullopt;
  finished_ = true;
  return judge(*intro);
}

StatusOr<std::optional<int>> ReceiverHandshake::judge(const std::string& intro) {
  const auto epoch = getAt<std::uint64_t>(intro, 0);
  const auto from = getAt<std::int32_t>(intro, 8);
  const auto to = getAt<std::int32_t>(intro, 12);
  const auto size = getAt<std::int32_t>(intro, 16);
  if (epoch > self_.epoch) {
    proof_.answer({Verdict::Kind::kNotYet, self_.epoch});
    return std::nullopt;
  }
  if (epoch < self_.epoch) {
    // Left over from before; it is told, and this group goes on without it.
    proof_.answer({Verdict::Kind::kRefused, self_.epoch,
                   fmt::format("rank {} forms epoch {}, rank {} epoch {}", from, epoch, self_.rank,
                               self_.epoch)});
    return std::nullopt;
  }
  if (size != self_.size || to != self_.rank || from < 0 || from >= size || from == self_.rank) {
    const std::string why = fmt::format("rank {} of {} looks for rank {}; this is rank {} of {}",
                                        from, size, to, self_.rank, self_.size);
    proof_.answer({Verdict::Kind::kRefused, self_.epoch, why});
    return absl::FailedPreconditionError(why);
  }
  proof_.answer({Verdict::Kind::kTaken, self_.epoch});
  return from;
}

}  // namespace trainyard::runtime::transport
