#include "operator/job/internal/yaml.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "re2/re2.h"
#include "yaml-cpp/depthguard.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/yaml.h"

namespace trainyard::control::internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = 1 << 20;  // the apiserver refuses larger objects, too
constexpr int kMaxDepth = 64;
constexpr int kMaxDocuments = 64;
constexpr int kMaxValues = 100000;  // aliases of aliases grow without bound

// yaml-cpp takes a quote that is never closed for one that ends with the file. A comment put at the
// end of the text then becomes part of a scalar, and of no scalar otherwise.
constexpr std::string_view kEndMark = "# the end of a Trainyard job";

bool matches(std::string_view text, const RE2& pattern) {
  return RE2::FullMatch(re2::StringPiece(text.data(), text.size()), pattern);
}

StatusOr<Json> floatingPoint(std::string_view text) {
  if (text.front() == '+') text.remove_prefix(1);
  const auto value = parseNumber<double>(text);
  if (!value) return absl::InvalidArgumentError(fmt::format("{} is out of range", text));
  return Json(*value);
}

// A whole number, or the nearest floating-point number where it does not fit 64 bits: the schema's
// bounds then refuse it by name.
StatusOr<Json> integer(std::string_view text) {
  if (text.front() == '+') text.remove_prefix(1);
  if (const auto value = parseNumber<std::int64_t>(text)) return Json(*value);
  return floatingPoint(text);
}

StatusOr<Json> based(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data() + 2, text.data() + text.size(), value, base);
  if (error != std::errc() || value > INT64_MAX) {
    return absl::InvalidArgumentError(fmt::format("{} is out of range", text));
  }
  return Json(static_cast<std::int64_t>(value));
}

// The length of the UTF-8 sequence at the front of `text`; 0 when there is none.
std::size_t sequenceLength(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

// The line of the first byte that is not UTF-8 text; 0 when all is.
int firstBadLine(std::string_view text) {
  int line = 1;
  while (!text.empty()) {
    const std::size_t length = sequenceLength(text);
    if (length == 0 || text.front() == '\0') return line;
    if (text.front() == '\n') ++line;
    text.remove_prefix(length);
  }
  return 0;
}

class Reader {
 public:
  Reader(std::string_view file, YamlDocument* document, std::vector<JobProblem>* problems)
      : file_(file), document_(document), problems_(problems) {}

  Json read(const YAML::Node& node, const std::string& path, int line, int depth) {
    document_->locations.set(path, {file_, line});
    if (depth > kMaxDepth || ++values_ > kMaxValues) {
      if (values_ <= kMaxValues + 1) problem(line, path, "nested too deeply, or too many values");
      values_ = kMaxValues + 1;  // one such problem is enough
      return nullptr;
    }
    if (node.IsMap()) return readMap(node, path, depth);
    if (node.IsSequence()) return readSequence(node, path, depth);
    return node.IsScalar() ? readScalar(node, path, line) : Json(nullptr);
  }

  void problem(int line, const std::string& field, std::string message) {
    problems_->push_back({file_, line, field, std::move(message)});
  }

 private:
  Json readMap(const YAML::Node& node, const std::string& path, int depth) {
    Json result = Json::object();
    for (const auto& entry : node) {
      const YAML::Node key = entry.first;
      const int line = key.Mark().line + 1;
      if (!key.IsScalar()) {
        problem(line, path, "a key that is not plain text");
        continue;
      }
      const std::string child = childPath(path, key.Scalar());
      if (key.Scalar() == "<<" && key.Tag() == "?") {
        problem(line, path, "merge keys (<<) are not part of YAML 1.2; write the members out");
      } else if (result.contains(key.Scalar())) {
        problem(line, child,
                fmt::format("given twice, first on line {}", document_->locations.at(child).line));
      } else {
        result[key.Scalar()] = read(entry.second, child, line, depth + 1);
      }
    }
    return result;
  }

  Json readSequence(const YAML::Node& node, const std::string& path, int depth) {
    Json result = Json::array();
    for (const YAML::Node& item : node) {
      result.push_back(read(item, childPath(path, result.size()), item.Mark().line + 1, depth + 1));
    }
    return result;
  }

  Json readScalar(const YAML::Node& node, const std::string& path, int line) {
    const std::string& tag = node.Tag();
    if (node.Scalar().find(kEndMark) != std::string::npos) {
      problem(line, path, "not valid YAML: a quote that is not closed");
      return nullptr;
    }
    // yaml-cpp's tags of an untagged scalar: "!" when quoted or a block, "?" when plain.
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return node.Scalar();
    const bool known = tag == "?" || tag.empty() || tag == "tag:yaml.org,2002:int" ||
                       tag == "tag:yaml.org,2002:float" || tag == "tag:yaml.org,2002:bool" ||
                       tag == "tag:yaml.org,2002:null";
    if (!known) {
      problem(line, path, fmt::format("the tag {} is not supported", tag));
      return nullptr;
    }
    StatusOr<Json> value = plainScalar(node.Scalar());
    if (value.ok()) return *std::move(value);
    problem(line, path, std::string(value.status().message()));
    return nullptr;
  }

  const std::string file_;
  YamlDocument* document_;
  std::vector<JobProblem>* problems_;
  int values_ = 0;
};

// The document that is not empty. Comments and "---" may make empty ones around it.
std::optional<YAML::Node> theDocument(const std::vector<YAML::Node>& all, Reader& reader) {
  std::optional<YAML::Node> result;
  for (const YAML::Node& node : all) {
    if (node.IsNull()) continue;
    if (result) {
      reader.problem(node.Mark().line + 1, "", "a second document; a file holds one");
      return std::nullopt;
    }
    result.emplace(node);
  }
  if (!result) reader.problem(0, "", "the file is empty");
  return result;
}

// yaml-cpp 0.7 finds documents without end behind some texts that are none, each of nothing.
class DocumentCount final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++count_ > kMaxDocuments) throw YAML::ParserException(mark, "too many documents");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int count_ = 0;
};

// Throws as YAML::LoadAll() does.
std::vector<YAML::Node> documentsOf(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentCount count;
  while (parser.HandleNextDocument(count)) {
  }
  return YAML::LoadAll(text);
}

}  // namespace

StatusOr<Json> plainScalar(std::string_view text) {
  static const RE2 kNull("|~|null|Null|NULL");
  static const RE2 kTrue("true|True|TRUE");
  static const RE2 kFalse("false|False|FALSE");
  static const RE2 kInteger("[-+]?(0|[1-9][0-9]*)");
  static const RE2 kAmbiguous("[-+]?0[0-9]+");
  static const RE2 kOctal("0o[0-7]+");
  static const RE2 kHexadecimal("0x[0-9a-fA-F]+");
  static const RE2 kFloat("[-+]?(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)([eE][-+]?[0-9]+)?");
  static const RE2 kNotFinite("[-+]?\\.(inf|Inf|INF)|\\.(nan|NaN|NAN)");
  if (matches(text, kNull)) return Json(nullptr);
  if (matches(text, kTrue)) return Json(true);
  if (matches(text, kFalse)) return Json(false);
  if (matches(text, kInteger)) return integer(text);
  if (matches(text, kAmbiguous)) {
    return absl::InvalidArgumentError(
        fmt::format("{} is decimal for some readers and octal for others; write it without the "
                    "leading 0, as 0o, "
                    "or in quotes",
                    text));
  }
  if (matches(text, kOctal)) return based(text, 8);
  if (matches(text, kHexadecimal)) return based(text, 16);
  if (matches(text, kFloat)) return floatingPoint(text);
  if (matches(text, kNotFinite)) {
    return absl::InvalidArgumentError(fmt::format("{} is not a finite number", text));
  }
  return Json(std::string(text));
}

bool readYaml(std::string_view text, std::string_view file, YamlDocument* document,
              std::vector<JobProblem>* problems) {
  const std::size_t before = problems->size();
  Reader reader(file, document, problems);
  if (text.size() > kMaxBytes) {
    reader.problem(0, "", fmt::format("larger than {} bytes", kMaxBytes));
    return false;
  }
  if (const int line = firstBadLine(text)) {
    reader.problem(line, "", "not UTF-8 text");
    return false;
  }
  try {
    const auto node = theDocument(documentsOf(fmt::format("{}\n{}\n", text, kEndMark)), reader);
    if (node) document->value = reader.read(*node, "", node->Mark().line + 1, 0);
  } catch (const YAML::Exception& e) {
    const int last = std::max<int>(1, std::count(text.begin(), text.end(), '\n'));
    const int line = e.mark.is_null() ? 0 : std::min(e.mark.line + 1, last);
    const bool deep = dynamic_cast<const YAML::DeepRecursion*>(&e) != nullptr;
    reader.problem(line, "", deep ? "nested too deeply" : "not valid YAML: " + e.msg);
  }
  return problems->size() == before;
}

}  // namespace trainyard::control::internal
