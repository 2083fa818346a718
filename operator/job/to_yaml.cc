#include <string>

#include "operator/job/internal/yaml.h"
#include "operator/job/job.h"
#include "re2/re2.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::ordered_json;

// Plain where every reader, of YAML 1.1 too, takes it for text; else quoted as in JSON, which YAML
// contains.
std::string scalar(const Json& value) {
  static const RE2 kPlain("[A-Za-z_/][A-Za-z0-9_./-]*");
  static const RE2 kKeyword("(?i)y|n|yes|no|on|off|true|false|null");
  if (!value.is_string()) return value.dump();
  const auto text = value.get<std::string>();
  const bool plain = RE2::FullMatch(text, kPlain) && !RE2::FullMatch(text, kKeyword);
  // Bytes that are no UTF-8 must not make a file that nobody can write.
  return plain ? text : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// YAML finds a key without a mark before it within 1024 characters only.
constexpr std::size_t kLongestKey = 1000;

bool isBlock(const Json& value) {
  return value.is_structured() && !value.empty();
}

void emit(const Json& value, const std::string& indent, std::string& out);

// What follows "key:" or "-".
void emitAfter(const Json& value, const std::string& indent, std::string& out) {
  if (isBlock(value)) {
    out += '\n';
    emit(value, indent, out);
  } else {
    out += ' ' + scalar(value) + '\n';
  }
}

void emit(const Json& value, const std::string& indent, std::string& out) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      const std::string name = scalar(key);
      out += indent + (name.size() > kLongestKey ? "? " + name + '\n' + indent : name) + ':';
      emitAfter(member, indent + "  ", out);
    }
    return;
  }
  for (const Json& item : value) {
    if (!isBlock(item)) {
      out += indent + "- " + scalar(item) + '\n';
      continue;
    }
    // The item's first line stands on the line of its dash.
    std::string block;
    emit(item, indent + "  ", block);
    block.replace(indent.size(), 2, "- ");
    out += block;
  }
}

}  // namespace

std::string toYaml(const Json& json) {
  if (!isBlock(json)) return scalar(json) + '\n';
  std::string out;
  emit(json, "", out);
  return out;
}

}  // namespace trainyard::control
