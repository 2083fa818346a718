#include "agent/supervisor/foreign_program.h"

#include "base/process/files.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::agent {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using testing::StartsWith;

void addTask(v1::Membership& membership, v1::Role role, std::uint32_t index, const std::string& ip,
             std::uint32_t port) {
  v1::MemberTask* task = membership.add_tasks();
  task->mutable_id()->set_role(role);
  task->mutable_id()->set_index(index);
  task->set_ip(ip);
  task->set_port(port);
}

// 1 ps and workers 0, 2, 5 on two machines.
v1::Membership sample() {
  v1::Membership membership;
  membership.set_revision(7);
  addTask(membership, v1::ROLE_PS, 0, "10.0.0.1", 100);
  addTask(membership, v1::ROLE_WORKER, 0, "10.0.0.1", 200);
  addTask(membership, v1::ROLE_WORKER, 2, "10.0.0.2", 201);
  addTask(membership, v1::ROLE_WORKER, 5, "10.0.0.2", 202);
  membership.mutable_tasks(3)->set_host("far");
  return membership;
}

TaskIdentity self(v1::Role role, std::uint32_t index) {
  TaskIdentity self{
      .job = {.name = "demo", .ns = "ns", .uid = "u"}, .id = {}, .created = 1, .foreign = true};
  self.id.set_role(role);
  self.id.set_index(index);
  return self;
}

TEST(ForeignVariables, TellAWorkerItsPlace) {
  const Variables variables =
      foreignVariables(sample(), self(v1::ROLE_WORKER, 5), "m.json", {{"my-data", "/d"}});
  for (const auto& [name, value] : Variables{
           {"TRAINYARD_JOB", "demo"},
           {"TRAINYARD_NAMESPACE", "ns"},
           {"TRAINYARD_ROLE", "worker"},
           {"TRAINYARD_INDEX", "5"},
           {"TRAINYARD_REVISION", "7"},
           {"TRAINYARD_MEMBERSHIP_FILE", "m.json"},
           {"TRAINYARD_VOLUME_MY_DATA", "/d"},
           {"PS_HOSTS", "10.0.0.1:100"},
           {"WORKER_HOSTS", "10.0.0.1:200,10.0.0.2:201,far:202"},
           {"RANK", "2"},
           {"WORLD_SIZE", "3"},
           {"LOCAL_RANK", "1"},
           {"LOCAL_WORLD_SIZE", "2"},
           {"MASTER_ADDR", "10.0.0.1"},
           {"MASTER_PORT", "200"},
           {"TRAINYARD_RENDEZVOUS", "10.0.0.1:201"},
           {"TF_CONFIG", R"({"cluster":{"ps":["10.0.0.1:100"],"worker":["10.0.0.1:200",)"
                         R"("10.0.0.2:201","far:202"]},"task":{"type":"worker","index":5}})"}}) {
    EXPECT_THAT(variables, Contains(Pair(name, value)));
  }
}

TEST(ForeignVariables, GiveEachProcessAPlace) {
  TaskIdentity last = self(v1::ROLE_WORKER, 5);
  last.processes = 3;
  const Variables variables = foreignVariables(sample(), last, "m.json", {}, {.process = 2});
  for (const auto& [name, value] :
       Variables{{"TRAINYARD_INDEX", "5"},
                 {"RANK", "8"},
                 {"WORLD_SIZE", "9"},
                 {"LOCAL_RANK", "5"},
                 {"LOCAL_WORLD_SIZE", "6"},
                 {"MASTER_PORT", "200"},
                 {"WORKER_HOSTS", "10.0.0.1:200,10.0.0.2:201,far:202"}}) {
    EXPECT_THAT(variables, Contains(Pair(name, value)));
  }
}

TEST(ForeignVariables, TellWhereToTellAndWhereToMeet) {
  const TaskIdentity worker = self(v1::ROLE_WORKER, 0);
  EXPECT_THAT(foreignVariables(sample(), worker, "m.json", {}),
              Not(Contains(Pair("TRAINYARD_REPORT", testing::_))));
  const Variables variables = foreignVariables(
      sample(), worker, "m.json", {}, {.report = "/t/tell.sock", .taken = {202, 201, 204}});
  EXPECT_THAT(variables, Contains(Pair("TRAINYARD_REPORT", "/t/tell.sock")));
  EXPECT_THAT(variables, Contains(Pair("TRAINYARD_RENDEZVOUS", "10.0.0.1:203")))
      << "not where agents listen";
  v1::Membership membership = sample();
  membership.mutable_tasks(1)->set_ip("fd00::1");
  EXPECT_THAT(foreignVariables(membership, worker, "m.json", {}),
              Contains(Pair("TRAINYARD_RENDEZVOUS", "[fd00::1]:201")));
}

TEST(ForeignVariables, GiveAPsNoRank) {
  const Variables variables = foreignVariables(sample(), self(v1::ROLE_PS, 0), "m.json", {});
  EXPECT_THAT(variables, Contains(Pair("WORLD_SIZE", "3")));
  EXPECT_THAT(variables, Not(Contains(Pair("RANK", testing::_))));
}

TEST(ExpandVariables, ReplacesOnlyWhatItKnows) {
  const Variables variables = {{"RANK", "3"}, {"PS_HOSTS", "a:1,b:2"}, {"EMPTY", ""}};
  EXPECT_EQ(expandVariables("--ps=$(PS_HOSTS) $(RANK)$(RANK)", variables), "--ps=a:1,b:2 33");
  EXPECT_EQ(expandVariables("[$(EMPTY)]", variables), "[]");
  EXPECT_EQ(expandVariables("$$(RANK) $$$(RANK)", variables), "$(RANK) $$(RANK)");
  for (const char* text : {"$(date) $$(date)", "$$ $RANK ${RANK}", "$(RANK", "$", "$$", "(RANK)"}) {
    EXPECT_EQ(expandVariables(text, variables), text);
  }
}

TEST(ForeignStart, PutsTheEnvironmentTogether) {
  ForeignProgram program;
  program.argv = {"run", "$(RANK)"};
  program.env = {{"PATH", "/mine"}, {"LD_PRELOAD", "mine.so"}};
  program.gpu_by_rank = true;
  const Variables variables = {{"RANK", "1"}, {"LOCAL_RANK", "1"}};
  const std::vector<std::string> outer = {"PATH=/bin", "LD_PRELOAD=x.so", "RANK=9", "HOME=/h"};
  const ForeignStart start = foreignStart(program, variables, v1::ROLE_WORKER, outer);
  EXPECT_THAT(start.argv, ElementsAre("run", "1"));
  EXPECT_THAT(start.env, ElementsAre("HOME=/h", "CUDA_VISIBLE_DEVICES=1", "PATH=/mine",
                                     "LD_PRELOAD=mine.so", "RANK=1", "LOCAL_RANK=1"));
  EXPECT_THAT(foreignStart(program, variables, v1::ROLE_WORKER, {"CUDA_VISIBLE_DEVICES=4"}).env,
              Contains("CUDA_VISIBLE_DEVICES=4"));
  EXPECT_THAT(foreignStart(program, {}, v1::ROLE_PS, {"CUDA_VISIBLE_DEVICES=4"}).env,
              Contains("CUDA_VISIBLE_DEVICES="));
  program.gpu_by_rank = false;
  EXPECT_THAT(foreignStart(program, variables, v1::ROLE_WORKER, {}).env,
              Not(Contains(StartsWith("CUDA_VISIBLE_DEVICES="))));
}

TEST(ForeignStart, KeepsTheSecretFromTheArguments) {
  ForeignProgram program;
  program.argv = {"run", "$(TRAINYARD_SECRET)", "$(RANK)"};
  const ForeignStart start = foreignStart(program, {{"RANK", "1"}}, v1::ROLE_WORKER,
                                          {"TRAINYARD_SECRET=of the agent's"}, "abc");
  EXPECT_THAT(start.argv, ElementsAre("run", "$(TRAINYARD_SECRET)", "1"));
  EXPECT_THAT(start.env, ElementsAre("RANK=1", "TRAINYARD_SECRET=abc"));
}

TEST(ForeignProgramOfArguments, WhatItsContainerSaysOfTheLoaderIsMeantForIt) {
  const std::vector<std::string> environment = {"PATH=/bin", "LD_LIBRARY_PATH=/cuda=1",
                                                "TRAINYARD_POD_IP=10.0.0.1"};
  const ForeignProgram program = foreignProgram({"run", "$(RANK)"}, {{"data", "/d"}}, environment);
  const ForeignStart start = foreignStart(program, {{"RANK", "2"}}, v1::ROLE_WORKER, environment);
  EXPECT_THAT(start.argv, ElementsAre("run", "2"));
  EXPECT_THAT(start.env, ElementsAre("PATH=/bin", "LD_LIBRARY_PATH=/cuda=1", "RANK=2"));
  EXPECT_EQ(program.volumes.at("data"), "/d");
}

TEST(ReadForeignProgram, NamesTheFileOfWhatItCannotRead) {
  const TempDir dir;
  const auto path = dir.path() / "command.json";
  ASSERT_TRUE(writeFileAtomically(path, R"({"argv": ["a"], "env": [["B", "c"]], "workingDir": "/w",
                                            "volumes": {"d": "/e"}})")
                  .ok());
  const auto program = readForeignProgram(path);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(program->argv, ElementsAre("a"));
  EXPECT_THAT(program->env, ElementsAre(Pair("B", "c")));
  EXPECT_EQ(program->working_dir, "/w");
  EXPECT_THAT(program->volumes, ElementsAre(Pair("d", "/e")));
  for (const char* text : {"", "{}", R"({"argv": [], "env": [], "workingDir": "", "volumes": {}})",
                           R"({"argv": ["a"], "env": [[1]], "workingDir": "", "volumes": {}})"}) {
    ASSERT_TRUE(writeFileAtomically(path, text).ok());
    EXPECT_THAT(std::string(readForeignProgram(path).status().message()), HasSubstr(path.string()));
  }
}

}  // namespace
}  // namespace trainyard::agent
