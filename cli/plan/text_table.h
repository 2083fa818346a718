// Tables in plain text.
#pragma once

#include <string>
#include <vector>

namespace trainyard::cli {

using TableRow = std::vector<std::string>;

// Columns two spaces apart, as wide as their widest cell; columns with `right` are flush right. No
// spaces at the ends of lines.
std::string renderTable(const std::vector<TableRow>& rows, const std::vector<bool>& right);

}  // namespace trainyard::cli
