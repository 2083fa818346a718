#include "runtime/ps/row_grid.h"

#include "base/core/check.h"
#include "runtime/catalog/table_parts.h"

namespace trainyard::runtime::ps {

RowGrid::RowGrid(std::size_t chunks, int servers)
    : first_(static_cast<std::uint32_t>(chunks)), parts_(rows::cutIntoParts(kTableParts)) {
  TY_CHECK(servers >= 1, "tables are on servers");
  for (int part = 0; part < kTableParts; ++part)
    ps_of_part_.push_back(serverOfTablePart(part, servers));
}

std::optional<RowGrid::Meaning> RowGrid::meaningOf(std::uint32_t number) const {
  if (number < first_ || number - first_ >= 2 * parts_.size()) return std::nullopt;
  const std::size_t at = number - first_;
  const bool reads = at >= parts_.size();
  return Meaning{reads ? at - parts_.size() : at, reads};
}

}  // namespace trainyard::runtime::ps
