#include "runtime/ps/row_grid.h"

#include "base/core/check.h"

namespace trainyard::runtime::ps {
namespace {

// Few, because each is asked in each step; more than one for each server's threads, of as many
// servers as a job with tables is likely to have.
constexpr int kParts = 16;

}  // namespace

RowGrid::RowGrid(std::size_t chunks, int servers)
    : first_(static_cast<std::uint32_t>(chunks)), parts_(rows::cutIntoParts(kParts)) {
  TY_CHECK(servers >= 1, "tables are on servers");
  for (int part = 0; part < kParts; ++part) ps_of_part_.push_back(part * servers / kParts);
}

std::optional<RowGrid::Meaning> RowGrid::meaningOf(std::uint32_t number) const {
  if (number < first_ || number - first_ >= 2 * parts_.size()) return std::nullopt;
  const std::size_t at = number - first_;
  const bool reads = at >= parts_.size();
  return Meaning{reads ? at - parts_.size() : at, reads};
}

}  // namespace trainyard::runtime::ps
