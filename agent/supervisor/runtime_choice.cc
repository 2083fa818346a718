#include "agent/supervisor/runtime_choice.h"

#include "base/process/cpus.h"
#include "base/programs/job_file.h"
#include "base/programs/runtime_program.h"

namespace trainyard::agent {

StatusOr<RuntimeChoice> chooseRuntime(const std::string& job_file, const std::string& runtime,
                                      const TaskIdentity& self, int workers_here,
                                      const char* visible) {
  RuntimeChoice choice{runtime, {}};
  const StatusOr<v1::TrainingJob> job = readJobFile(job_file);
  if (!job.ok()) return choice;
  const v1::Training& training = job->spec().training();
  TY_ASSIGN_OR_RETURN(choice.program, runtimeProgram(runtime, training, self.id.role(), visible));
  if (self.id.role() != v1::ROLE_WORKER) return choice;
  TY_ASSIGN_OR_RETURN(choice.threads,
                      computeThreads(training, availableCpus(usableCores()),
                                     workers_here * static_cast<int>(self.processes)));
  return choice;
}

}  // namespace trainyard::agent
