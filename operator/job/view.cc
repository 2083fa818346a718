#include "operator/job/internal/view.h"

#include <algorithm>

#include "fmt/format.h"

namespace trainyard::control::internal {

View View::operator[](std::string_view key) const {
  const nlohmann::ordered_json* member = nullptr;
  if (value_ != nullptr && value_->is_object()) {
    const auto found = value_->find(std::string(key));
    if (found != value_->end()) member = &*found;
  }
  return {member, childPath(path_, key)};
}

std::vector<View> View::items() const {
  std::vector<View> result;
  if (value_ == nullptr || !value_->is_array()) return result;
  for (std::size_t i = 0; i < value_->size(); ++i) {
    result.emplace_back(&(*value_)[i], childPath(path_, i));
  }
  return result;
}

std::optional<std::int64_t> View::integer() const {
  if (value_ == nullptr || !value_->is_number_integer()) return std::nullopt;
  return value_->get<std::int64_t>();
}

std::optional<bool> View::boolean() const {
  if (value_ == nullptr || !value_->is_boolean()) return std::nullopt;
  return value_->get<bool>();
}

std::optional<std::string> View::text() const {
  if (value_ == nullptr || !value_->is_string()) return std::nullopt;
  return value_->get<std::string>();
}

std::string either(const Names& names, std::string_view word) {
  std::string result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) result += i + 1 == names.size() ? fmt::format(" {} ", word) : ", ";
    result += names[i];
  }
  return result;
}

void checkBelongs(const View& object, std::string_view by, const std::vector<Belongs>& table,
                  ProblemList& problems) {
  const auto choice = object[by].text();
  if (!choice || problems.has(object[by].path())) return;
  for (const Belongs& row : table) {
    const View member = object[row.member];
    const bool fits =
        std::find(row.choices.begin(), row.choices.end(), *choice) != row.choices.end();
    if (member.present() && !fits) {
      problems.add(member.path(),
                   fmt::format("only with {} {}, not {}", by, either(row.choices, "or"), *choice));
    }
    if (row.needed && fits && !member.present()) {
      problems.add(member.path(), fmt::format("missing: {} {} needs it", by, *choice));
    }
  }
}

}  // namespace trainyard::control::internal
