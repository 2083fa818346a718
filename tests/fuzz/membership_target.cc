// A membership: as the JSON of a file, and as a message that is pushed.
#include "agent/membership/identity.h"
#include "agent/membership/membership_file.h"
#include "agent/membership/membership_store.h"
#include "base/core/check.h"
#include "base/core/strings.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

v1::Membership wholeMembership() {
  v1::Membership membership;
  membership.set_job("job");
  membership.set_namespace_("default");
  membership.set_uid("uid-1");
  membership.set_strategy("ParameterServer");
  membership.set_revision(3);
  for (const v1::Role role : {v1::ROLE_PS, v1::ROLE_WORKER}) {
    v1::MemberTask* task = membership.add_tasks();
    task->mutable_id()->set_role(role);
    task->set_created(2);
    task->set_host("host");
    task->set_ip("10.0.0.1");
    task->set_port(4000);
  }
  membership.set_steps(100);
  return membership;
}

// As an agent takes it over.
void adopt(const v1::Membership& membership) {
  agent::MembershipStore store("uid-1");
  const auto adopted = store.adopt(membership);
  if (!adopted.ok()) {
    TY_CHECK(store.newest() == nullptr && store.revision() == 0, "what is refused is not held");
    return;
  }
  TY_CHECK(store.revision() == membership.revision(), "what is adopted is held");
  TY_CHECK(membership.revision() > 0 && membership.uid() == "uid-1", "and of this job");
  TY_CHECK(store.adopt(membership).ok(), "the same again is fine");
  v1::Membership other = membership;
  other.set_job(membership.job() + "x");
  TY_CHECK(!store.adopt(other).ok(), "other content under the same revision is not");
  agent::TaskIdentity self;
  self.id.set_role(v1::ROLE_WORKER);
  self.created = 2;
  (void)agent::missingFor(membership, self);
  self.foreign = true;
  (void)agent::missingFor(membership, self);
  for (const v1::MemberTask& task : membership.tasks()) {
    (void)agent::taskName(task.id());
    if (const auto process = agent::processOf(self, task.id())) {
      TY_CHECK(agent::sameTask(agent::processId(self, *process), task.id()), "it is the process");
      (void)agent::processName(self, *process);
    }
  }
}

}  // namespace

void runMembership(std::string_view input) {
  const std::string text(input);
  const MemoryFile file(text);
  (void)agent::readJobIdentity(file.path());
  agent::MembershipFile source(file.path());
  const auto polled = source.poll();
  const auto parsed = agent::parseMembership(text, "place");
  if (polled) TY_CHECK(polled->ok() == parsed.ok(), "a file is what stands in it");
  TY_CHECK(!source.poll(), "it is told once");
  if (parsed.ok()) {
    adopt(*parsed);
    const auto again = agent::parseMembership(agent::formatMembership(*parsed), "again");
    TY_CHECK(again.ok() && agent::membershipHash(*again) == agent::membershipHash(*parsed),
             "what is written is what was read");
  } else {
    TY_CHECK(absl::IsInvalidArgument(parsed.status()), "text that is none is named so");
    TY_CHECK(std::string(parsed.status().message()).find('\n') == std::string::npos, "in one line");
  }
  v1::Membership pushed;
  if (pushed.ParseFromString(text)) adopt(pushed);
}

std::vector<std::string> membershipSeeds() {
  const v1::Membership membership = wholeMembership();
  std::vector<std::string> seeds = {
      "", "{", "{}", "[]", agent::formatMembership(membership), membership.SerializeAsString()};
  v1::Membership other = membership;
  other.set_uid("uid-2");
  seeds.push_back(agent::formatMembership(other));
  other = membership;
  other.set_revision(-1);
  seeds.push_back(agent::formatMembership(other));
  other = membership;
  other.mutable_tasks(0)->set_port(0);
  seeds.push_back(agent::formatMembership(other));
  other.mutable_tasks(1)->set_created(1);
  seeds.push_back(agent::formatMembership(other));
  seeds.emplace_back(R"({"tasks":[{"id":{"role":"ROLE_WORKER","index":-1}}]})");
  seeds.emplace_back(R"({"uid":"uid-1","revision":"9223372036854775807","more":{}})");
  seeds.emplace_back(R"({"metadata":{"name":"job","namespace":"ns","uid":"uid-1"}})");
  seeds.emplace_back(R"({"metadata":{"name":5}})");
  seeds.emplace_back(R"({"metadata":{"name":"job"}})");
  seeds.push_back(std::string(200, '[') + std::string(200, ']'));
  return seeds;
}

}  // namespace trainyard::fuzz
