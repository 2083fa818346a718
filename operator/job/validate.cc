#include "operator/job/internal/validate.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "operator/job/internal/schema.h"
#include "re2/re2.h"

namespace trainyard::control::internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShownCharacters = 60;

// Each pattern of the schema in words.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kPatternWords = {{
    {"^Auto$", "Auto or a whole number"},
    {"^/", "a path that begins with '/'"},
    {"^[a-z]([-a-z0-9]*[a-z0-9])?$",
     "an RFC 1035 name: lower-case letters, digits and '-', beginning with a letter and not ending "
     "with '-'"},
    {"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
     "lower-case letters, digits and '-', neither beginning nor ending with '-'"},
    {"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
     "letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"},
    {"^[A-Za-z_][A-Za-z0-9_]*$", "letters, digits and '_', not beginning with a digit"},
    {"^[a-z0-9][a-z0-9.-]*[a-z0-9]$",
     "lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"},
    {"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
     "lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"},
    {"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$",
     "names of letters, digits, '.', '_' and '-', with '/' between them"},
    {"^https?://[^/?#@]+$", "http[s]://host[:port]"},
    {"^[a-z0-9-]+$", "lower-case letters, digits and '-'"},
    {"^[-._a-zA-Z0-9]+$", "letters, digits, '-', '_' and '.'"},
}};

std::string shortened(std::string text) {
  if (text.size() <= kShownCharacters) return text;
  std::size_t end = kShownCharacters;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

std::string shown(const Json& value) {
  return shortened(value.dump());
}

std::string describeValue(const Json& value) {
  if (value.is_null()) return "nothing";
  if (value.is_boolean()) return value.dump();
  if (value.is_string()) return fmt::format("text {}", shown(value));
  if (value.is_array()) return "a list";
  return value.is_object() ? "a mapping" : shown(value);
}

std::string patternWords(const std::string& pattern) {
  for (const auto& [known, words] : kPatternWords) {
    if (known == pattern) return std::string(words);
  }
  return fmt::format("text that matches {}", pattern);
}

std::string describeType(const Json& schema) {
  if (isIntOrText(schema)) return patternWords(schema.at("pattern").get<std::string>());
  const std::string type = schema.value("type", "");
  if (schema.contains("enum")) {
    std::vector<std::string> values;
    for (const Json& value : schema.at("enum")) values.push_back(value.get<std::string>());
    return fmt::format("one of {}", join(values, ", "));
  }
  if (type == "integer") return "a whole number";
  if (type == "number") return "a number";
  if (type == "boolean") return "true or false";
  if (type == "string") return "text";
  return type == "array" ? "a list" : "a mapping";
}

bool hasType(const Json& value, const Json& schema) {
  if (isIntOrText(schema)) return value.is_string() || value.is_number_integer();
  const std::string type = schema.value("type", "");
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "number") return value.is_number();
  // What applyDefaults() left as floating point is no whole number, or too large for one.
  return value.is_number_integer();
}

std::size_t countCharacters(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

bool matches(const std::string& text, const std::string& pattern) {
  return RE2::PartialMatch(text, pattern);
}

class Walker {
 public:
  explicit Walker(ProblemList& problems) : problems_(problems) {}

  void visit(const Json& value, const Json& schema, const std::string& path) {
    if (!hasType(value, schema)) return wrongType(value, schema, path);
    if (value.is_number()) return checkNumber(value, schema, path);
    if (value.is_string()) return checkText(value.get<std::string>(), schema, path);
    if (value.is_array()) return checkList(value, schema, path);
    if (value.is_object()) checkObject(value, schema, path);
  }

 private:
  void wrongType(const Json& value, const Json& schema, const std::string& path) {
    // A number that fits no integer is better told its bounds.
    if (value.is_number() && (isIntOrText(schema) || schema.value("type", "") == "integer")) {
      if (value.get<double>() > schema.at("maximum").get<double>() ||
          value.get<double>() < schema.at("minimum").get<double>()) {
        return checkNumber(value, schema, path);
      }
    }
    problems_.add(path,
                  fmt::format("expected {}, got {}", describeType(schema), describeValue(value)));
  }

  void checkNumber(const Json& value, const Json& schema, const std::string& path) {
    const double number = value.get<double>();
    if (schema.contains("minimum")) {
      const Json& minimum = schema.at("minimum");
      const bool exclusive = schema.value("exclusiveMinimum", false);
      if (number < minimum.get<double>()) {
        problems_.add(path,
                      fmt::format("{} is below the minimum {}", value.dump(), minimum.dump()));
      } else if (exclusive && number == minimum.get<double>()) {
        problems_.add(path, fmt::format("{} is not above {}", value.dump(), minimum.dump()));
      }
    }
    if (schema.contains("maximum")) {
      const Json& maximum = schema.at("maximum");
      const bool exclusive = schema.value("exclusiveMaximum", false);
      if (number > maximum.get<double>()) {
        problems_.add(path,
                      fmt::format("{} is above the maximum {}", value.dump(), maximum.dump()));
      } else if (exclusive && number == maximum.get<double>()) {
        problems_.add(path, fmt::format("{} is not below {}", value.dump(), maximum.dump()));
      }
    }
  }

  void checkText(const std::string& text, const Json& schema, const std::string& path) {
    if (schema.contains("enum")) return checkEnum(text, schema, path);
    const std::size_t characters = countCharacters(text);
    if (characters < schema.value("minLength", std::size_t{0})) {
      return problems_.add(path, "is empty");
    }
    if (schema.contains("maxLength") && characters > schema.at("maxLength").get<std::size_t>()) {
      return problems_.add(path, fmt::format("{} characters; at most {}", characters,
                                             schema.at("maxLength").dump()));
    }
    if (schema.contains("pattern")) {
      const auto pattern = schema.at("pattern").get<std::string>();
      if (!matches(text, pattern)) {
        problems_.add(path, fmt::format("expected {}, got {}", patternWords(pattern), shown(text)));
      }
    }
    static const std::string kTime =
        "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?"
        "([Zz]|[-+][0-9]{2}:[0-9]{2})$";
    if (schema.value("format", "") == "date-time" && !matches(text, kTime)) {
      problems_.add(
          path, fmt::format("expected a time such as 2030-01-31T12:00:00Z, got {}", shown(text)));
    }
  }

  void checkEnum(const std::string& text, const Json& schema, const std::string& path) {
    std::vector<std::string> values;
    for (const Json& value : schema.at("enum")) values.push_back(value.get<std::string>());
    if (std::find(values.begin(), values.end(), text) != values.end()) return;
    const auto meant = nearest(text, values);
    problems_.add(path,
                  fmt::format("expected {}, got {}{}", describeType(schema), shown(text),
                              meant ? fmt::format("; did you mean {}?", *meant) : std::string()));
  }

  void checkList(const Json& list, const Json& schema, const std::string& path) {
    const std::size_t size = list.size();
    const std::size_t least = schema.value("minItems", std::size_t{0});
    const std::size_t most = schema.value("maxItems", size);
    if (size < least || size > most) {
      const std::string range = least == most  ? fmt::format("exactly {} are", most)
                                : size < least ? fmt::format("at least {} are", least)
                                               : fmt::format("at most {} are", most);
      problems_.add(path, fmt::format("{} items; {} expected", size, range));
    }
    // Far too long a list needs no word on each of its items.
    if (size > most) return;
    for (std::size_t i = 0; i < size; ++i) visit(list[i], schema.at("items"), childPath(path, i));
    if (schema.contains("x-kubernetes-list-map-keys")) checkKeys(list, schema, path);
  }

  void checkKeys(const Json& list, const Json& schema, const std::string& path) {
    const auto key = schema.at("x-kubernetes-list-map-keys").at(0).get<std::string>();
    std::set<std::string> seen;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list[i].is_object() || !list[i].contains(key)) continue;
      if (!seen.insert(list[i].at(key).dump()).second) {
        problems_.add(childPath(childPath(path, i), key),
                      fmt::format("{} is given twice (duplicate)", shown(list[i].at(key))));
      }
    }
  }

  void checkObject(const Json& object, const Json& schema, const std::string& path) {
    for (const auto& [name, member] : object.items()) {
      const Json* const known = memberSchema(schema, name);
      if (known != nullptr) {
        visit(member, *known, childPath(path, name));
      } else if (!isOpaque(schema)) {
        unknownField(name, schema, path);
      }
    }
    if (schema.contains("maxProperties") &&
        object.size() > schema.at("maxProperties").get<std::size_t>()) {
      problems_.add(path, fmt::format("{} members; at most {}", object.size(),
                                      schema.at("maxProperties").dump()));
    }
    if (!schema.contains("required")) return;
    for (const Json& entry : schema.at("required")) {
      const auto name = entry.get<std::string>();
      if (object.contains(name)) continue;
      problems_.add(childPath(path, name), fmt::format("missing: required, {}",
                                                       describeType(*memberSchema(schema, name))));
    }
  }

  void unknownField(const std::string& name, const Json& schema, const std::string& path) {
    std::vector<std::string> names;
    if (schema.contains("properties")) {
      for (const auto& [known, unused] : schema.at("properties").items()) names.push_back(known);
    }
    const auto meant = nearest(name, names);
    problems_.add(childPath(path, name),
                  meant ? fmt::format("unknown field; did you mean \"{}\"?", *meant)
                        : fmt::format("unknown field; known here: {}", join(names, ", ")));
  }

  ProblemList& problems_;
};

}  // namespace

void ProblemList::add(const std::string& field, std::string message) {
  if (has(field)) return;
  const Location location = locations_.at(field);
  problems_->push_back({location.file, location.line, field, std::move(message)});
}

bool ProblemList::has(const std::string& field) const {
  return std::any_of(problems_->begin(), problems_->end(),
                     [&](const JobProblem& problem) { return problem.field == field; });
}

void validate(const Json& value, const Json& schema, ProblemList& problems) {
  Walker(problems).visit(value, schema, "");
}

}  // namespace trainyard::control::internal
