#include "base/process/run_to_end.h"

namespace trainyard {

StatusOr<ExitState> runToEnd(const SpawnOptions& options, Duration limit) {
  TY_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::spawn(options));
  return child.wait(systemClock().now() + limit);
}  // whose end joins the thread that reads

}  // namespace trainyard
