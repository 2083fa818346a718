#include "runtime/catalog/data_columns.h"

#include <string_view>

#include "fmt/format.h"

namespace trainyard::runtime {
namespace {

v1::ColumnSpec column(std::string name, std::string_view kind) {
  v1::ColumnSpec spec;
  spec.set_name(std::move(name));
  spec.set_kind(std::string(kind));
  return spec;
}

std::vector<v1::ColumnSpec> criteoColumns() {
  std::vector<v1::ColumnSpec> columns = {column("label", "Label")};
  for (int i = 1; i <= kCriteoIntegers; ++i)
    columns.push_back(column(fmt::format("I{}", i), "Number"));
  for (int i = 1; i <= kCriteoCategories; ++i)
    columns.push_back(column(fmt::format("C{}", i), "Id"));
  return columns;
}

}  // namespace

std::vector<v1::ColumnSpec> dataColumns(const v1::DataSpec& spec) {
  if (spec.format() == "criteo") return criteoColumns();
  return {spec.columns().begin(), spec.columns().end()};
}

}  // namespace trainyard::runtime
