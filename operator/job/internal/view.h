// A job's document as the rules across fields read it, and what many of them are made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "operator/job/internal/path.h"
#include "operator/job/internal/validate.h"

namespace trainyard::control::internal {

// A value that may be absent, with its path. Never fails: what is absent or of another type is
// empty.
class View {
 public:
  View(const nlohmann::ordered_json* value, std::string path)
      : value_(value), path_(std::move(path)) {}

  View operator[](std::string_view key) const;
  std::vector<View> items() const;
  bool present() const { return value_ != nullptr; }
  bool isObject() const { return value_ != nullptr && value_->is_object(); }
  std::optional<std::int64_t> integer() const;
  std::optional<bool> boolean() const;
  std::optional<std::string> text() const;
  const std::string& path() const { return path_; }

 private:
  const nlohmann::ordered_json* value_;
  std::string path_;
};

using Names = std::vector<std::string_view>;

// "a", "a or b", "a, b or c".
std::string either(const Names& names, std::string_view word);

// A member that has a meaning only where the choice made in `by` is one of `choices`.
struct Belongs {
  std::string_view member;
  Names choices;
  bool needed = false;  // and must then be there
};

void checkBelongs(const View& object, std::string_view by, const std::vector<Belongs>& table,
                  ProblemList& problems);

}  // namespace trainyard::control::internal
