// The job's end of a session, for the tests of the Python package: parabola_member PATH STEPS
// serves one program and says how that ended.
#include <cstdlib>
#include <iostream>

#include "tests/runtime/session/parabola_host.h"

namespace trainyard::runtime::session {
namespace {

int serveOne(const char* path, std::int64_t steps) {
  auto listener = ChannelListener::open(path);
  if (!listener.ok()) {
    std::cout << listener.status() << std::endl;
    return EXIT_FAILURE;
  }
  std::cout << "listening" << std::endl;
  auto channel = listener->accept({});
  if (!channel.ok()) return EXIT_FAILURE;
  ParabolaHost host(steps);
  const Status end = serve(*channel, {.job = "parabola", .index = 3}, host, {});
  std::cout << "end: " << end << ", hits " << host.hits.value_or(-1) << std::endl;
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace trainyard::runtime::session

int main(int argc, char** argv) {
  return argc == 3 ? trainyard::runtime::session::serveOne(argv[1], std::atoll(argv[2]))
                   : EXIT_FAILURE;
}
