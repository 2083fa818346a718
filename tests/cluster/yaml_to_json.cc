// Reads one YAML document from standard input and prints it as JSON: for tests in Python, which has no
// YAML of its own.
#include <iostream>
#include <iterator>
#include <string>

#include "operator/job/internal/yaml.h"

int main() {
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  trainyard::control::internal::YamlDocument document;
  std::vector<trainyard::control::JobProblem> problems;
  if (!trainyard::control::internal::readYaml(text, "standard input", &document, &problems)) {
    std::cerr << (problems.empty() ? "no document" : problems.front().text()) << "\n";
    return 1;
  }
  std::cout << document.value.dump() << "\n";
}
