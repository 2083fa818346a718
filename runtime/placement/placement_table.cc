#include "runtime/placement/placement_table.h"

#include <cstddef>
#include <vector>

#include "base/core/units.h"
#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

constexpr std::size_t kMostParts = 1000;

}  // namespace

std::string rangeText(const Variable& variable, const Part& part) {
  const bool flat = part.axis == kFlatAxis;
  const std::int64_t whole = flat ? variable.elements()
                             : variable.shape.empty()
                                 ? 1
                                 : variable.shape[static_cast<std::size_t>(part.axis)];
  if (part.begin == 0 && part.end == whole) return "all";
  const std::string of = flat ? "elements" : fmt::format("axis {}", part.axis);
  return fmt::format("{} to {} of {}, {}", formatCount(part.begin), formatCount(part.end),
                     formatCount(whole), of);
}

std::string placementTable(const Placement& placement) {
  std::vector<std::int64_t> held(static_cast<std::size_t>(placement.num_ps), 0);
  for (const Part& part : placement.parts) held[static_cast<std::size_t>(part.ps)] += part.bytes;
  std::string text;
  for (std::size_t ps = 0; ps < held.size(); ++ps) {
    text += fmt::format("- ps-{}: {} bytes\n", ps, formatCount(held[ps]));
  }
  text += "\n| variable | part | server | bytes |\n|--|--|--|--|\n";
  std::size_t rows = 0;
  for (const Part& part : placement.parts) {
    if (++rows > kMostParts) {
      text +=
          fmt::format("\nand {} more\n",
                      formatCount(static_cast<std::int64_t>(placement.parts.size() - kMostParts)));
      break;
    }
    const Variable& variable = placement.variables[static_cast<std::size_t>(part.variable)];
    text += fmt::format("| {} | {} | ps-{} | {} |\n", variable.name, rangeText(variable, part),
                        part.ps, formatCount(part.bytes));
  }
  return text;
}

}  // namespace trainyard::runtime
