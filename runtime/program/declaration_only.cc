#include "runtime/program/declaration_only.h"

#include <optional>
#include <string>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/program/declared_model.h"
#include "runtime/session/serve.h"

namespace trainyard::runtime {
namespace {

using session::Outcome;
using session::TurnMessage;

// Nothing follows the declaration: the program has ended before it hears of anything.
class DeclarationHost final : public session::SessionHost {
 public:
  explicit DeclarationHost(ProgramProcess& program) : program_(program) {}

  StatusOr<session::MemoryPlace> declare(const session::Declaration& declaration) override {
    declaration_ = declaration;
    program_.stop();
    return nothingFollows();
  }
  StatusOr<TurnMessage> next(session::WaitingProgram&) override { return nothingFollows(); }
  void push(std::uint32_t) override {}
  StatusOr<Outcome> finish(const session::Finish&) override { return nothingFollows(); }
  StatusOr<Outcome> sum(const session::Finish&) override { return nothingFollows(); }
  StatusOr<Outcome> commit() override { return nothingFollows(); }
  void evaluated(const session::Score&) override {}
  void abort(std::string_view) override {}

  const std::optional<session::Declaration>& declaration() const { return declaration_; }

 private:
  static Status nothingFollows() {
    return absl::CancelledError("only the declaration was asked for");
  }

  ProgramProcess& program_;
  std::optional<session::Declaration> declaration_;
};

StatusOr<session::Declaration> await(ProgramProcess& program, const session::Welcome& welcome,
                                     const std::function<bool()>& late) {
  TY_ASSIGN_OR_RETURN(session::Channel channel, program.accept(late));
  DeclarationHost host(program);
  const Status served = session::serve(channel, welcome, host, late);
  if (host.declaration()) {
    TY_RETURN_IF_ERROR(checkDeclared(*host.declaration()));
    return *host.declaration();
  }
  if (absl::IsAborted(served)) return absl::InvalidArgumentError(served.message());
  return served;
}

}  // namespace

StatusOr<session::Declaration> declarationOf(ProgramProcess& program,
                                             const session::Welcome& welcome, Duration limit) {
  const TimePoint until = systemClock().now() + limit;
  const auto late = [until] { return systemClock().now() >= until; };
  StatusOr<session::Declaration> declared = await(program, welcome, late);
  program.stop();
  if (absl::IsCancelled(declared.status()) && late()) {
    return absl::DeadlineExceededError(
        fmt::format("the program declared no model within {:.0f} s", toSeconds(limit)));
  }
  return declared;
}

}  // namespace trainyard::runtime
