#include "runtime/checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace trainyard::runtime {
namespace {

using HeaderJson = nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kAlignment = 64;

Status badTensor(std::string_view name, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("tensor '{}': {}", name, what));
}

StatusOr<std::uint64_t> tensorBytes(const SafetensorsEntry& entry) {
  const std::string& name = entry.name;
  std::uint64_t n = elementBytes(entry.dtype);
  if (n == 0) return badTensor(name, fmt::format("dtype: {} is not known", entry.dtype));
  for (const std::int64_t d : entry.shape) {
    if (d <= 0) return badTensor(name, fmt::format("dimension {}, expected at least 1", d));
    if (__builtin_mul_overflow(n, static_cast<std::uint64_t>(d), &n))
      return badTensor(name, "shape overflows");
  }
  return n;
}

StatusOr<SafetensorsEntry> decodeEntry(const std::string& name, const HeaderJson& json) {
  if (!json.is_object()) return badTensor(name, "expected an object");
  SafetensorsEntry entry;
  entry.name = name;
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) return badTensor(name, "dtype: expected a text");
  entry.dtype = dtype->get<std::string>();
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array() || shape->size() > 32) {
    return badTensor(name, "shape: expected a list of at most 32 numbers");
  }
  for (const HeaderJson& d : *shape) {
    if (!d.is_number_unsigned() || d > std::numeric_limits<std::int64_t>::max()) {
      return badTensor(name, "shape: expected whole numbers");
    }
    entry.shape.push_back(d.get<std::int64_t>());
  }
  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return badTensor(name, "data_offsets: expected two whole numbers");
  }
  entry.begin = (*offsets)[0].get<std::uint64_t>();
  entry.end = (*offsets)[1].get<std::uint64_t>();
  TY_ASSIGN_OR_RETURN(const std::uint64_t bytes, tensorBytes(entry));
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return badTensor(name, fmt::format("data_offsets [{}, {}), expected {} bytes", entry.begin,
                                       entry.end, bytes));
  }
  return entry;
}

}  // namespace

std::uint64_t elementBytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::uint64_t> kKnown[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, bytes] : kKnown) {
    if (name == dtype) return bytes;
  }
  return 0;
}

StatusOr<std::string> encodeSafetensorsHeader(const std::map<std::string, std::string>& metadata,
                                              const std::vector<SafetensorsEntry>& entries) {
  HeaderJson json = HeaderJson::object();
  json["__metadata__"] = metadata;
  std::set<std::string_view> seen{"__metadata__"};
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (!seen.insert(entry.name).second) return badTensor(entry.name, "occurs twice");
    TY_ASSIGN_OR_RETURN(const std::uint64_t bytes, tensorBytes(entry));
    HeaderJson& slot = json.emplace(entry.name, HeaderJson::object()).first.value();
    slot["dtype"] = entry.dtype;
    slot["shape"] = entry.shape;
    slot["data_offsets"] = {at, at + bytes};
    at += bytes;
  }
  // Not UTF-8: replaced instead of thrown; variable names are ours.
  std::string text = json.dump(-1, ' ', false, HeaderJson::error_handler_t::replace);
  const std::uint64_t unpadded = kLengthBytes + text.size();
  text.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError(
        fmt::format("header of {} bytes, at most {}", text.size(), kMaxSafetensorsHeader));
  }
  std::string result(kLengthBytes, '\0');
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) {
    result[i] = static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i));
  }
  return result + text;
}

StatusOr<SafetensorsHeader> decodeSafetensorsHeader(std::string_view text,
                                                    std::uint64_t file_size) {
  SafetensorsHeader header;
  header.data_start = kLengthBytes + text.size();
  const HeaderJson json = HeaderJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("header is not a JSON object");
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return badTensor(name, "expected an object");
      for (const auto& [key, word] : value.items()) {
        if (!word.is_string()) return badTensor(name, fmt::format("{}: expected a string", key));
        header.metadata[key] = word.get<std::string>();
      }
      continue;
    }
    TY_ASSIGN_OR_RETURN(SafetensorsEntry entry, decodeEntry(name, value));
    header.entries.push_back(std::move(entry));
  }
  std::sort(header.entries.begin(), header.entries.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != at) {
      return badTensor(entry.name, fmt::format("starts at byte {}, expected {}", entry.begin, at));
    }
    at = entry.end;
  }
  if (header.data_start + at != file_size) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes long, expected {}", file_size, header.data_start + at));
  }
  return header;
}

}  // namespace trainyard::runtime
