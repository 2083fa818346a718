// `trainyard doctor` on this machine: what is found is said, with what to do.
#include <sys/stat.h>

#include <sstream>

#include "base/core/commit.h"
#include "base/core/exit_code.h"
#include "base/process/files.h"
#include "cli/app.h"
#include "cli/doctor/local_findings.h"
#include "cli/doctor/quantity.h"
#include "cli/version.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"
#include "tests/cli/doctor_cases.h"

namespace trainyard::cli {
namespace {

using testing::HasSubstr;

ProgramFacts goodProgram(const std::string& name) {
  return {"/bin/trainyard-" + name, absl::OkStatus(), "trainyard-" + name + " 0.1.0 abc"};
}

LocalFacts goodMachine() {
  LocalFacts facts;
  facts.release = "0.1.0";
  facts.commit = "abc";
  facts.agent = goodProgram("agent");
  facts.runtime = goodProgram("runtime");
  facts.runtime_torch = {"/bin/trainyard-runtime-torch", absl::OkStatus(),
                         "trainyard-runtime 0.1.0 abc"};
  facts.cpus = {2, "of this machine"};
  facts.memory = AvailableMemory{7'000'000'000, 8'000'000'000, "this machine"};
  facts.shm = {"/dev/shm", "/dev/shm", absl::OkStatus(), 4'000'000'000, true};
  facts.open_files = 20000;
  facts.runs = {"/srv/runs", "/srv", absl::OkStatus(), 50'000'000'000, true};
  facts.gpu = true;
  facts.python = {"3.11.2", "2.3.0", "0.1.0"};
  return facts;
}

TEST(DoctorTextTest, GoldenOfAGoodMachine) {
  EXPECT_EQ("\n" + diagnosisText({"this machine", localFindings(goodMachine())}, false), R"(
Programs
  ok       trainyard 0.1.0 (commit abc)
  ok       trainyard-agent 0.1.0
  ok       trainyard-runtime 0.1.0
  ok       trainyard-runtime-torch 0.1.0
Machine
  ok       2 cores of this machine
  ok       7 GB of 8 GB memory available (this machine)
  ok       tasks can share memory
  ok       /dev/shm: 4 GB free
  ok       20000 open files for each process
  ok       tasks can reach each other at 127.0.0.1
Runs
  ok       runs can be made in /srv/runs: 50 GB free
GPU
  ok       an NVIDIA GPU, and trainyard-runtime-torch to compute on it
Python programs of your own
  note     python3 3.11.2 with torch 2.3.0, trainyard-client 0.1.0
this machine: no problems
)");
}

TEST(DoctorTextTest, WhatIsToBeDoneForSeveralIsSaidOnce) {
  Diagnosis diagnosis{"here", {}};
  FindingGroup one("One", diagnosis.findings);
  one.warning("first\nline", "mend it");
  one.warning("second", "mend it");
  one.unknown("third", absl::UnavailableError("no answer"), "try");
  FindingGroup("Two", diagnosis.findings).problem("fourth", "mend it");
  EXPECT_EQ("\n" + diagnosisText(diagnosis, false), R"(
One
  warning  first\nline
  warning  second
             mend it
  unknown  third: no answer
             try
Two
  problem  fourth
             mend it
here: 1 problem, 2 warnings, 1 unknown
)");
  EXPECT_THAT(diagnosisText(diagnosis, true), HasSubstr("\x1b["));
  const auto json = diagnosisJson(diagnosis);
  EXPECT_EQ(json["warnings"], 2);
  EXPECT_EQ(json["findings"][3].dump(),
            R"({"group":"Two","level":"problem","text":"fourth","advice":"mend it"})");
}

using LocalCase = FindingCase<LocalFacts>;

const std::vector<LocalCase>& localCases() {
  static const std::vector<LocalCase> kCases = {
      {[](LocalFacts& f) { f.agent.executable = absl::NotFoundError("x"); }, kIsProblem,
       "trainyard-agent is not in /bin", "make build"},
      {[](LocalFacts& f) { f.runtime.executable = absl::PermissionDeniedError("denied"); },
       kIsProblem, "trainyard-runtime cannot be started: denied",
       "chmod a+rx /bin/trainyard-runtime"},
      {[](LocalFacts& f) { f.runtime.said = absl::FailedPreconditionError("no libdnnl.so.3"); },
       kIsProblem, "trainyard-runtime does not work: no libdnnl.so.3",
       "ldd /bin/trainyard-runtime"},
      {[](LocalFacts& f) { f.agent.said = "trainyard-agent 0.2.0 abc"; }, kIsProblem,
       "trainyard-agent is 0.2.0, trainyard is 0.1.0", "keep those of one build together"},
      {[](LocalFacts& f) { f.agent.said = "trainyard-agent 0.1.0 def"; }, kIsWarning,
       "trainyard-agent is of another build: commit def, trainyard's is abc", "make build"},
      {[](LocalFacts& f) { f.agent.said = "usage"; }, kIsProblem, "it does not say of which",
       "make build"},
      {[](LocalFacts& f) {
         f.cpus = {0.5, "by the limit of x"};
       },
       kIsWarning, "0.5 cores by the limit of x: less than one", "--cpus"},
      {[](LocalFacts& f) { f.cpus.cores = 1; }, kIsOk, "1 core of this machine", ""},
      {[](LocalFacts& f) { f.memory->bytes = 300 << 20; }, kIsWarning, "that is little", "plan"},
      {[](LocalFacts& f) { f.memory = absl::NotFoundError("no meminfo"); }, kIsUnknown,
       "memory: no meminfo", "/proc"},
      {[](LocalFacts& f) { f.shared_memory = absl::UnavailableError("no /proc"); }, kIsWarning,
       "tasks cannot share memory: no /proc", "memfd_create"},
      {[](LocalFacts& f) { f.shm.free_bytes = 64 << 20; }, kIsWarning, "/dev/shm: 67.1 MB free",
       "--shm-size"},
      {[](LocalFacts& f) { f.shm.here = "/dev"; }, kIsWarning, "/dev/shm is not there", "shm"},
      {[](LocalFacts& f) { f.shm.writable = absl::PermissionDeniedError("/dev/shm: denied"); },
       kIsWarning, "nothing can be written: /dev/shm: denied", "shm"},
      {[](LocalFacts& f) { f.open_files = 256; }, kIsWarning, "only 256 open files", "ulimit -n"},
      {[](LocalFacts& f) { f.loopback = absl::UnavailableError("127.0.0.1: none"); }, kIsProblem,
       "tasks cannot reach each other: 127.0.0.1: none", "ip link set lo up"},
      {[](LocalFacts& f) { f.runs.writable = absl::PermissionDeniedError("denied"); }, kIsProblem,
       "no run can be made in /srv/runs: denied", "TRAINYARD_RUNS"},
      {[](LocalFacts& f) { f.runs.free_bytes = 900'000'000; }, kIsWarning,
       "only 900 MB free for runs in /srv/runs", "keep"},
      {[](LocalFacts& f) { f.runs.free_bytes = 1000; }, kIsProblem, "only 1 kB free", "keep"},
      {[](LocalFacts& f) { f.runs.free_known = false; }, kIsUnknown, "free space cannot be read",
       "df"},
      {[](LocalFacts& f) { f.runtime_torch.executable = absl::NotFoundError("x"); }, kIsWarning,
       "an NVIDIA GPU, but no trainyard-runtime-torch", "make torch TRAINYARD_TORCH=DIR"},
      {[](LocalFacts& f) { f.gpu = false; }, kIsNote, "no NVIDIA GPU; trainyard-runtime-torch", ""},
      {[](LocalFacts& f) {
         f.gpu = false;
         f.runtime_torch.executable = absl::NotFoundError("x");
       },
       kIsNote, "no NVIDIA GPU, and no trainyard-runtime-torch", "make torch"},
      {[](LocalFacts& f) { f.python = {}; }, kIsNote, "no python3 on the PATH", "python3"},
      {[](LocalFacts& f) { f.python.client = ""; }, kIsNote, "no trainyard-client", "make wheel"},
  };
  return kCases;
}

TEST(DoctorLocalTest, EachFindingSaysWhatToDo) {
  expectOneFindingEach(goodMachine(), localCases(), localFindings);
}

class DoctorVerbTest : public testing::Test {
 protected:
  void program(const std::string& name, const std::string& script) {
    const auto path = folder_.path() / name;
    ASSERT_TRUE(writeFileAtomically(path, "#!/bin/sh\n" + script + "\n", 0755).ok());
  }
  void goodPrograms() {
    for (const char* name : {"trainyard-agent", "trainyard-runtime"}) {
      program(name, fmt::format("echo {} {} {}", name, versionText(), builtCommit()));
    }
  }
  int doctor(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "doctor");
    out_.str("");
    Console console{out_, out_};
    console.program_dir = folder_.path().string();
    console.runs_dir = (folder_.path() / "deep" / "runs").string();
    return runApp(arguments, console);
  }
  std::string said() const { return out_.str(); }

  TempDir folder_;
  std::ostringstream out_;
};

TEST_F(DoctorVerbTest, LooksAtThisMachineAndLeavesNothing) {
  goodPrograms();
  EXPECT_EQ(doctor({}), kExitOk) << said();
  EXPECT_THAT(said(), HasSubstr("ok       trainyard-agent " + versionText()));
  EXPECT_THAT(said(), HasSubstr("tasks can share memory"));
  EXPECT_THAT(said(), HasSubstr("tasks can reach each other at 127.0.0.1"));
  EXPECT_THAT(said(), HasSubstr(fmt::format("runs can be made in {}/deep/runs: ",
                                            folder_.path().string())));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "deep"));
}

TEST_F(DoctorVerbTest, ProgramsThatDoNotWorkAreAProblem) {
  program("trainyard-agent", "echo error while loading shared libraries: libfmt.so; exit 127");
  program("trainyard-runtime", "");
  ::chmod((folder_.path() / "trainyard-runtime").c_str(), 0644);
  EXPECT_EQ(doctor({"-o", "json"}), kExitFailure);
  const auto json = nlohmann::json::parse(said());
  EXPECT_EQ(json["problems"], 2);
  EXPECT_THAT(said(), HasSubstr("trainyard-agent does not work: error while loading shared"));
  EXPECT_THAT(said(), HasSubstr("trainyard-runtime cannot be started: "));
}

TEST_F(DoctorVerbTest, AFileInTheWayOfTheRunsIsAProblem) {
  goodPrograms();
  ASSERT_TRUE(writeFileAtomically(folder_.path() / "deep", "").ok());
  EXPECT_EQ(doctor({}), kExitFailure);
  EXPECT_THAT(said(), HasSubstr("Not a directory"));
}

TEST_F(DoctorVerbTest, WithoutAClusterSaysHowToNameOne) {
  EXPECT_EQ(doctor({"--cluster"}), kExitUsage);
  EXPECT_THAT(said(), HasSubstr("problem  no cluster is known"));
  EXPECT_THAT(said(), HasSubstr("kubectl config get-contexts"));
  EXPECT_EQ(doctor({"-n", "lab", "--runs", "x"}), kExitUsage);
}

TEST(DoctorQuantityTest, ReadsWhatKubernetesWrites) {
  EXPECT_EQ(parseQuantity("12"), 12);
  EXPECT_EQ(parseQuantity("500m"), 0.5);
  EXPECT_EQ(parseQuantity("2Gi"), 2.0 * (1 << 30));
  EXPECT_EQ(parseQuantity("1k"), 1000);
  EXPECT_EQ(parseQuantity("1e3"), 1000);
  EXPECT_EQ(parseQuantity("3E"), 3e18);
  EXPECT_FALSE(parseQuantity(""));
  EXPECT_FALSE(parseQuantity("many"));
  EXPECT_FALSE(parseQuantity("1Xi"));
}

}  // namespace
}  // namespace trainyard::cli
