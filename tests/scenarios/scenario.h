// Text scenarios: what happens to a job, and all that the controller then writes, as a story in one
// file. The cluster is tests/fakes/fake_cluster.h, time is a fake clock.
//
// A file is a sequence of blocks, separated by blank lines; # starts a comment line, kept in place:
//
//   exit worker-1 code=1
//   reconcile
//   ----
//   status
//     state: Running -> Restarting
//   delete worker-1 (created 1)
//
// Above the line stand commands, below it what they print. Commands (see scenario_commands.cc):
// clang-format off
//   job ps=N workers=N [success= clean= backoff= deadline= ttl= suspend= managed= foreign= strategy=
//       min= ps-restart= worker-restart= replacement= rules= queue=]       record the job
//   life [address=] [ready=] [slow-delete=] [held=]     what new tasks do by themselves
//   reconcile [quiet]                                   all that is due now; prints nothing
//   advance DURATION                                    let time pass, with all that comes due
//   ready TASK|all, unready TASK, address TASK, exit TASK code=N [cause=], kill TASK signal=N,
//   disrupt TASK cause=, vanish TASK, delete TASK [due=N], evict TASK, gone TASK,
//   in-place TASK restarts=N
//   cost TASK cost=N                                    its deletion cost
//   set [suspend= workers= ps= backoff= clean= steps= replacement=]        the user edits the job
//   progress created=N [step= steps= loss= accuracy= outcome= failure= epoch= lost= checkpoint=]
//   waits TASK reason= [message=]                       what the cluster says of a task
//   obstacle [reason= message=]                         ... of all that cannot be created
//   refusal [reason= message=]                          ... of what it refused to create
//   storage [reason= message=]                          why checkpoints do not last
//   quota granted [workers=N] | withdrawn [message=] | waits [message=]    what the job's queue says
//   images agent= runtime=                              what tasks are made from
//   fail CALL code=CODE [times=N] [applied=true]        CALL: create, delete, publish, status, quota...
//   die after=N, restart-operator                       killed after N more writes; a new one
//   touch                                               somebody else writes the record
//   remove-job, delete-job                              gone; being deleted
//   status, counts, wish                                print what is recorded, counted, wished
// clang-format on
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "operator/controller.h"
#include "tests/fakes/fake_cluster.h"
#include "tests/fakes/fake_progress.h"

namespace trainyard::control {

// The words of one command: positional ones in order, the others by name.
struct Command {
  std::string name;
  std::vector<std::string> words;
  std::map<std::string, std::string> options;
  std::string text(const std::string& option, const std::string& otherwise = "") const;
  std::int64_t number(const std::string& option, std::int64_t otherwise) const;
  bool flag(const std::string& option, bool otherwise) const;
};
// INVALID_ARGUMENT when a quote is open.
StatusOr<Command> parseCommand(std::string_view line);

// The world of one scenario.
class Scenario {
 public:
  Scenario();
  // What the command prints. INVALID_ARGUMENT when there is no such command.
  StatusOr<std::string> run(const Command& command);

  // "Running | True | AllTasksReady" for each condition ever written, and "JobCreated | Normal" for
  // each event.
  const std::set<std::string>& conditions() const { return conditions_; }
  const std::set<std::string>& events() const { return events_; }

 private:
  using Handler = std::function<Status(const Command&)>;
  void addJobCommands();
  void addTaskCommands();
  void addFaultCommands();
  void startOperator();
  Status addJob(const Command& command);
  Status edit(const Command& command);
  Status say(const Command& command);
  void advance(Duration by);
  void runDue();
  void note(const std::string& entry);
  std::string describeStatus();

  FakeClock clock_;
  FakeCluster cluster_;
  FakeProgress progress_;
  std::unique_ptr<Controller> controller_;
  JobKey key_{"default", "job"};
  std::map<std::string, Handler> handlers_;
  std::string out_;
  std::set<std::string> conditions_;
  std::set<std::string> events_;
};

// Runs the text of a file in `scenario` and returns it with the outputs that came. INVALID_ARGUMENT
// names the line.
StatusOr<std::string> rewrite(std::string_view text, Scenario* scenario);

}  // namespace trainyard::control
