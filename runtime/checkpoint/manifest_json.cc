#include "runtime/checkpoint/manifest_json.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/core/json_depth.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/checkpoint/names.h"

namespace trainyard::runtime {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxList = 100'000;
constexpr std::size_t kMaxText = 4096;
constexpr std::int64_t kMaxInt = std::numeric_limits<std::int64_t>::max();
constexpr int kMaxTasks = 4096;

Status badField(std::string_view field, std::string_view message) {
  return invalidInput(field, message);
}

// The fields of one JSON object: each is taken once, what is left over is unknown. The first error
// stays and silences all that follow.
class Fields {
 public:
  Fields(const OrderedJson& json, std::string place, Status& status)
      : json_(json), place_(std::move(place)), status_(status) {
    if (!json.is_object()) fail("", "expected an object");
  }

  std::string text(const char* name) {
    const OrderedJson* value = take(name);
    if (value == nullptr) return {};
    if (!value->is_string()) return fail(name, "expected a string"), "";
    std::string result = value->get<std::string>();
    if (result.size() > kMaxText)
      return fail(name, fmt::format("longer than {} bytes", kMaxText)), "";
    return result;
  }

  std::int64_t number(const char* name, std::int64_t min, std::int64_t max) {
    const OrderedJson* value = take(name);
    if (value == nullptr) return min;
    const bool fits = value->is_number_unsigned()
                          ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(max)
                          : value->is_number_integer() && value->get<std::int64_t>() <= max;
    if (!fits || value->get<std::int64_t>() < min) {
      return fail(name, fmt::format("{}, expected a whole number from {} to {}", value->dump(), min,
                                    max)),
             min;
    }
    return value->get<std::int64_t>();
  }

  // Calls `each(item, place)` for every item of a list.
  template <typename Each>
  void list(const char* name, std::size_t max, Each each) {
    const OrderedJson* value = take(name);
    if (value == nullptr) return;
    if (!value->is_array()) return fail(name, "expected a list");
    if (value->size() > max)
      return fail(name, fmt::format("{} items, at most {}", value->size(), max));
    for (std::size_t i = 0; i < value->size() && status_.ok(); ++i) {
      each((*value)[i], fmt::format("{}[{}]", path(name), i));
    }
  }

  bool flag(const char* name) {
    const OrderedJson* value = take(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return fail(name, "expected true or false"), false;
    return value->get<bool>();
  }

  template <typename Read>
  void object(const char* name, Read read) {
    const OrderedJson* value = take(name);
    if (value != nullptr) read(*value, path(name));
  }

  // No field is left over.
  void end() {
    if (!status_.ok() || json_.size() == taken_.size()) return;
    for (const auto& item : json_.items()) {
      if (!taken_.contains(item.key())) return fail(item.key().substr(0, 64), "unknown field");
    }
  }

 private:
  const OrderedJson* take(const char* name) {
    if (!status_.ok()) return nullptr;
    const auto found = json_.find(name);
    if (found == json_.end()) return fail(name, "is missing"), nullptr;
    taken_.insert(name);
    return &*found;
  }
  std::string path(std::string_view name) const {
    if (place_.empty()) return std::string(name);
    return name.empty() ? place_ : fmt::format("{}.{}", place_, name);
  }
  void fail(std::string_view name, std::string_view message) {
    if (status_.ok()) status_ = badField(path(name), message);
  }

  const OrderedJson& json_;
  std::string place_;
  Status& status_;
  std::set<std::string> taken_;
};

ManifestVariable readVariable(const OrderedJson& json, const std::string& place, Status& status) {
  Fields fields(json, place, status);
  ManifestVariable result{.name = fields.text("name"), .shape = {}, .dtype = fields.text("dtype")};
  fields.list("shape", 32, [&](const OrderedJson& d, const std::string& at) {
    if (d.is_number_unsigned() && d <= kMaxInt) {
      result.shape.push_back(d.get<std::int64_t>());
    } else {
      status = badField(at, "expected a whole number");
    }
  });
  fields.end();
  return result;
}

ManifestTable readTable(const OrderedJson& json, const std::string& place, Status& status) {
  Fields fields(json, place, status);
  ManifestTable result{
      .name = fields.text("name"), .dim = fields.number("dim", 0, 1 << 20), .slots = {}};
  fields.list("slots", 64, [&](const OrderedJson& slot, const std::string& at) {
    if (slot.is_string() && isPlainFileName(slot.get<std::string>())) {
      result.slots.push_back(slot.get<std::string>());
    } else {
      status = badField(at, "expected a name");
    }
  });
  fields.end();
  return result;
}

EpochRecord readEpoch(const OrderedJson& json, const std::string& place, Status& status) {
  Fields fields(json, place, status);
  EpochRecord result;
  result.epoch = fields.number("epoch", 0, kMaxInt);
  result.first_step = fields.number("firstStep", 0, kMaxInt);
  result.first_position = fields.number("firstPosition", 0, kMaxInt);
  result.ranks = static_cast<int>(fields.number("ranks", 0, kMaxTasks));
  result.step_samples = fields.number("stepSamples", 0, kMaxInt);
  fields.end();
  return result;
}

SampleRange readRange(const OrderedJson& json, const std::string& place, Status& status) {
  Fields fields(json, place, status);
  SampleRange result;
  result.first = fields.number("first", 0, kMaxInt);
  result.samples = fields.number("samples", 1, kMaxInt);
  fields.end();
  return result;
}

ShardFileInfo readFileInfo(const OrderedJson& json, const std::string& place, Status& status) {
  Fields fields(json, place, status);
  ShardFileInfo result;
  result.name = fields.text("name");
  result.size = static_cast<std::uint64_t>(fields.number("size", 0, kMaxInt));
  result.sha256 = fields.text("sha256");
  if (json.contains("delta")) result.delta = fields.flag("delta");
  fields.end();
  return result;
}

bool isSha256(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Status validateVariable(const ManifestVariable& variable, const std::string& place) {
  const std::string_view name = variable.name;
  const bool clean = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c > ' ' && c != '[' && c != ']' && c != ':' && c != '\'' && c != 0x7f;
  });
  if (name.empty() || !clean) {
    return badField(place + ".name",
                    fmt::format("'{}', expected a name without blanks and [ ] : '", name));
  }
  if (variable.dtype != "F32" && variable.dtype != "I32") {
    return badField(place + ".dtype", fmt::format("'{}', expected F32 or I32", variable.dtype));
  }
  std::int64_t bytes = 4;
  for (const std::int64_t d : variable.shape) {
    if (d <= 0 || __builtin_mul_overflow(bytes, d, &bytes)) {
      return badField(place + ".shape", "expected positive dimensions whose product fits 63 bits");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status validateManifest(const Manifest& manifest) {
  if (manifest.format != kCheckpointFormat) {
    return badField("format", fmt::format("{}, this release reads format {}", manifest.format,
                                          kCheckpointFormat));
  }
  if (manifest.step < 0) return badField("step", "is negative");
  if (manifest.epoch < 0) return badField("epoch", "is negative");
  if (!manifest.base.empty() && !parseManifestName(manifest.base))
    return badField("base", fmt::format("'{}', expected step-N.eM.json", manifest.base));
  if (manifest.variables.empty()) return badField("variables", "is empty");
  if (manifest.files.empty()) return badField("files", "is empty");
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < manifest.variables.size(); ++i) {
    const std::string place = fmt::format("variables[{}]", i);
    TY_RETURN_IF_ERROR(validateVariable(manifest.variables[i], place));
    if (!seen.insert(manifest.variables[i].name).second) {
      return badField(place + ".name",
                      fmt::format("'{}' occurs twice", manifest.variables[i].name));
    }
  }
  seen.clear();
  for (std::size_t i = 0; i < manifest.tables.size(); ++i) {
    const std::string& name = manifest.tables[i].name;
    if (!isPlainFileName(name) || !seen.insert(name).second)
      return badField(fmt::format("tables[{}].name", i), "expected a name of its own");
  }
  seen.clear();
  for (std::size_t i = 0; i < manifest.slots.size(); ++i) {
    const std::string& slot = manifest.slots[i];
    if (!isPlainFileName(slot) || !seen.insert(slot).second) {
      return badField(fmt::format("slots[{}]", i),
                      fmt::format("'{}', expected a name of its own", slot));
    }
  }
  seen.clear();
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const ShardFileInfo& file = manifest.files[i];
    const std::string place = fmt::format("files[{}]", i);
    if (!isPlainFileName(file.name)) {
      return badField(place + ".name",
                      fmt::format("'{}', expected a file name without a path", file.name));
    }
    if (!seen.insert(file.name).second) {
      return badField(place + ".name", fmt::format("'{}' occurs twice", file.name));
    }
    if (!isSha256(file.sha256)) return badField(place + ".sha256", "expected 64 hex digits");
    if (file.delta && manifest.base.empty())
      return badField(place + ".delta", "the manifest names no base");
  }
  return absl::OkStatus();
}

std::string manifestToJson(const Manifest& manifest) {
  OrderedJson epochs = OrderedJson::array(), variables = OrderedJson::array(),
              files = OrderedJson::array();
  for (const EpochRecord& e : manifest.epochs) {
    epochs.push_back({{"epoch", e.epoch},
                      {"firstStep", e.first_step},
                      {"firstPosition", e.first_position},
                      {"ranks", e.ranks},
                      {"stepSamples", e.step_samples}});
  }
  for (const ManifestVariable& v : manifest.variables) {
    variables.push_back({{"name", v.name}, {"dtype", v.dtype}, {"shape", v.shape}});
  }
  for (const ShardFileInfo& f : manifest.files) {
    files.push_back({{"name", f.name}, {"size", f.size}, {"sha256", f.sha256}});
    if (f.delta) files.back()["delta"] = true;
  }
  OrderedJson json = {{"format", manifest.format},
                      {"step", manifest.step},
                      {"epoch", manifest.epoch},
                      {"jobUid", manifest.job_uid},
                      {"unixMs", manifest.unix_ms},
                      {"modelDigest", manifest.model_digest},
                      {"dataSha256", manifest.data_sha256},
                      {"dataSamples", manifest.data_samples},
                      {"position", manifest.position},
                      {"epochs", std::move(epochs)},
                      {"maxPs", manifest.max_ps},
                      {"optimizer", manifest.optimizer},
                      {"slots", manifest.slots},
                      {"variables", std::move(variables)},
                      {"files", std::move(files)}};
  if (manifest.writer > 0) json["writer"] = manifest.writer;
  if (!manifest.base.empty()) json["base"] = manifest.base;
  if (manifest.history > 0) {
    json["history"] = {{"epoch", manifest.history}, {"from", manifest.history_from}};
  }
  for (const SampleRange& range : manifest.unread) {
    json["unread"].push_back({{"first", range.first}, {"samples", range.samples}});
  }
  for (const ManifestTable& table : manifest.tables) {
    json["tables"].push_back({{"name", table.name}, {"dim", table.dim}, {"slots", table.slots}});
  }
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

StatusOr<Manifest> manifestFromJson(std::string_view text) {
  if (jsonIsTooDeep(text)) return absl::InvalidArgumentError("nested too deeply");
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("not a JSON object");
  Status status;
  Fields fields(json, "", status);
  Manifest m;
  // First, and before unknown fields are refused: another format may look different altogether.
  m.format = static_cast<int>(fields.number("format", 0, std::numeric_limits<int>::max()));
  if (status.ok() && m.format != kCheckpointFormat) return validateManifest(m);
  m.step = fields.number("step", 0, kMaxInt);
  m.epoch = fields.number("epoch", 0, kMaxInt);
  m.job_uid = fields.text("jobUid");
  m.unix_ms = fields.number("unixMs", 0, kMaxInt);
  m.model_digest = fields.text("modelDigest");
  m.data_sha256 = fields.text("dataSha256");
  m.data_samples = fields.number("dataSamples", 0, kMaxInt);
  m.position = fields.number("position", 0, kMaxInt);
  if (json.contains("unread")) {
    fields.list("unread", kMaxTasks, [&](const OrderedJson& item, const std::string& place) {
      m.unread.push_back(readRange(item, place, status));
    });
  }
  if (json.contains("writer")) m.writer = fields.number("writer", 1, kMaxInt);
  if (json.contains("base")) m.base = fields.text("base");
  if (json.contains("history")) {
    fields.object("history", [&](const OrderedJson& item, const std::string& place) {
      Fields history(item, place, status);
      m.history = history.number("epoch", 0, kMaxInt);
      m.history_from = history.text("from");
      history.end();
    });
  }
  m.max_ps = static_cast<int>(fields.number("maxPs", 0, kMaxTasks));
  m.optimizer = fields.text("optimizer");
  fields.list("epochs", kMaxList, [&](const OrderedJson& item, const std::string& place) {
    m.epochs.push_back(readEpoch(item, place, status));
  });
  fields.list("slots", 64, [&](const OrderedJson& item, const std::string& place) {
    if (!item.is_string()) {
      status = badField(place, "expected a string");
    } else {
      m.slots.push_back(item.get<std::string>());
    }
  });
  fields.list("variables", kMaxList, [&](const OrderedJson& item, const std::string& place) {
    m.variables.push_back(readVariable(item, place, status));
  });
  if (json.contains("tables")) {
    fields.list("tables", kMaxTasks, [&](const OrderedJson& item, const std::string& place) {
      m.tables.push_back(readTable(item, place, status));
    });
  }
  fields.list("files", kMaxList, [&](const OrderedJson& item, const std::string& place) {
    m.files.push_back(readFileInfo(item, place, status));
  });
  fields.end();
  TY_RETURN_IF_ERROR(status);
  TY_RETURN_IF_ERROR(validateManifest(m));
  return m;
}

}  // namespace trainyard::runtime
