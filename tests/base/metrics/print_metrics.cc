// print_metrics [--json]: the catalogue of metrics as docs/metrics.md has it, or for checks.
#include <iostream>
#include <string_view>

#include "tests/base/metrics/catalogue_text.h"

int main(int argc, char** argv) {
  const bool json = argc > 1 && std::string_view(argv[1]) == "--json";
  std::cout << (json ? trainyard::metricsJson() : trainyard::metricsMarkdown());
  return 0;
}
