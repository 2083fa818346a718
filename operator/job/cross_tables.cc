#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "operator/job/internal/tables.h"

namespace trainyard::control::internal {
namespace {

constexpr std::string_view kWideAndDeep = "wide_and_deep";
constexpr std::string_view kDlrm = "dlrm";
constexpr std::string_view kProgram = "program";
constexpr std::string_view kModels = "wide_and_deep or dlrm";
constexpr std::string_view kMadeUp = "synthetic_ctr";
constexpr std::string_view kCriteo = "criteo";
constexpr int kCriteoCategories = 26;

// Of formats whose samples have columns: the job names them.
bool namesColumns(std::string_view format) {
  return format == "csv" || format == "tfrecord" || format == kMadeUp;
}

bool looksUp(std::string_view model) {
  return model == kWideAndDeep || model == kDlrm;
}

bool hasColumns(std::string_view format) {
  return namesColumns(format) || format == kCriteo;
}

// Tables are found by their names, and so are columns.
void checkNames(const View& list, std::string_view what, ProblemList& problems) {
  std::set<std::string> seen;
  for (const View& item : list.items()) {
    const View name = item["name"];
    const auto text = name.text();
    if (text && !seen.insert(*text).second)
      problems.add(name.path(), fmt::format("two {} have the same name {}", what, *text));
  }
}

// Of an id that is made up one must know how many there are; nobody makes up lists and words.
void checkMadeUp(const View& column, ProblemList& problems) {
  const View kind = column["kind"];
  const auto chosen = kind.text();
  if (chosen == "Ids" || chosen == "Text" || chosen == "Weight") {
    problems.add(kind.path(),
                 fmt::format("format {} takes the kinds Id, Number and Label only, not {}", kMadeUp,
                             *chosen));
  }
  if (chosen == "Id" && !column["ids"].present()) {
    problems.add(column["ids"].path(),
                 fmt::format("missing: format {} needs ids with kind Id", kMadeUp));
  }
}

std::int64_t countOf(std::string_view kind, const std::vector<View>& columns) {
  return std::count_if(columns.begin(), columns.end(),
                       [&](const View& column) { return column["kind"].text() == kind; });
}

void checkKinds(const View& columns, ProblemList& problems) {
  const std::vector<View> items = columns.items();
  const std::int64_t labels = countOf("Label", items), weights = countOf("Weight", items);
  if (!items.empty() && labels != 1) {
    problems.add(columns.path(),
                 fmt::format("exactly one column of kind Label is needed, got {}", labels));
  }
  if (weights > 1) {
    problems.add(columns.path(),
                 fmt::format("at most one column may be of kind Weight, got {}", weights));
  }
}

// The model that looks up rows, its tables, and data that has ids for them: none goes without the
// others.
void checkModel(const View& training, ProblemList& problems) {
  const View model = training["model"], tables = training["tables"];
  const auto name = model["name"].text();
  if (!name || problems.has(model["name"].path())) return;
  const bool looks_up = looksUp(*name);
  if (looks_up && !tables.present())
    problems.add(tables.path(), fmt::format("missing: model {} needs it", *name));
  if (!looks_up && *name != kProgram && tables.present()) {
    problems.add(tables.path(),
                 fmt::format("only with model wide_and_deep, dlrm or program, not {}", *name));
  }
  if (looks_up && model["hidden"].items().empty()) {
    problems.add(model["hidden"].path(),
                 fmt::format("missing: model {} needs at least one hidden layer", *name));
  }
  const View format = training["data"]["format"];
  const auto chosen = format.text();
  // A program that brings the model has no data here at all.
  if (!chosen || *name == kProgram || problems.has(format.path())) return;
  if (looks_up && !hasColumns(*chosen)) {
    problems.add(format.path(), fmt::format("model {} needs format csv, {}, tfrecord or {}, not {}",
                                            *name, kCriteo, kMadeUp, *chosen));
  }
  if (!looks_up && hasColumns(*chosen)) {
    problems.add(format.path(),
                 fmt::format("formats csv, {}, tfrecord and {} only with model {}, not {}", kCriteo,
                             kMadeUp, kModels, *name));
  }
}

// Names of columns that have ids.
std::set<std::string> featuresOf(const View& data) {
  std::set<std::string> features;
  if (data["format"].text() == kCriteo) {
    for (int c = 1; c <= kCriteoCategories; ++c) features.insert(fmt::format("C{}", c));
    return features;
  }
  for (const View& column : data["columns"].items()) {
    const auto kind = column["kind"].text();
    if (kind != "Number" && kind != "Label" && kind != "Weight")
      features.insert(column["name"].text().value_or(""));
  }
  return features;
}

// A program says itself what is looked up where.
void checkHasFeatures(const View& model, const View& table, ProblemList& problems) {
  const View name = model["name"], features = table["features"];
  if (!name.text() || problems.has(name.path())) return;
  if (*name.text() == kProgram) {
    if (features.present()) {
      problems.add(features.path(),
                   "not with model program, which says itself what is looked up in the table");
    }
  } else if (!features.present()) {
    problems.add(features.path(), fmt::format("missing: model {} needs it", *name.text()));
  }
}

void checkRows(const View& rows, ProblemList& problems) {
  const View expected = rows["expected"];
  const auto most = rows["max"].integer(), count = expected.integer();
  if (most && count && *count > *most)
    problems.add(expected.path(), fmt::format("at most max, {}, not {}", *most, *count));
}

void checkEviction(const View& evict, ProblemList& problems) {
  if (evict.present() && !evict["afterSteps"].present() && !evict["belowNorm"].present())
    problems.add(evict.path(), "missing: afterSteps, belowNorm or both");
}

void checkFeatures(const View& table, const std::set<std::string>& known, bool criteo,
                   ProblemList& problems) {
  for (const View& feature : table["features"].items()) {
    const auto name = feature.text();
    if (!name || known.contains(*name)) continue;
    problems.add(feature.path(),
                 criteo ? fmt::format("{} is none of criteo's columns C1 to C26", *name)
                        : fmt::format("{} is no column of kind Id, Ids or Text", *name));
  }
}

bool hasNumbers(const View& columns) {
  const std::vector<View> items = columns.items();
  return std::any_of(items.begin(), items.end(),
                     [](const View& column) { return column["kind"].text() == "Number"; });
}

// Tables of dim 1 are the wide half alone.
void checkDeep(const View& training, ProblemList& problems) {
  const View tables = training["tables"], columns = training["data"]["columns"];
  if (training["model"]["name"].text() != kWideAndDeep || columns.items().empty()) return;
  for (const View& table : tables.items()) {
    if (table["dim"].integer() != 1) return;
  }
  if (hasNumbers(columns)) return;
  problems.add(tables.path(),
               "nothing is deep: no table has a dim above 1, and no column is of kind Number");
}

// Rows and what the bottom layers make of the numbers are multiplied with each other.
void checkInteraction(const View& training, ProblemList& problems) {
  const View model = training["model"], columns = training["data"]["columns"];
  if (model["name"].text() != kDlrm) return;
  if (!columns.items().empty() && !hasNumbers(columns))
    problems.add(columns.path(), "model dlrm needs a column of kind Number");
  const View bottom = model["bottomHidden"];
  if (bottom.items().empty()) {
    problems.add(bottom.path(), "missing: model dlrm needs at least one layer for the numbers");
  }
  std::optional<std::int64_t> first;
  for (const View& table : training["tables"].items()) {
    const auto dim = table["dim"].integer();
    if (!dim || problems.has(table["dim"].path())) return;
    if (first && *dim != *first) {
      problems.add(table["dim"].path(),
                   fmt::format("model dlrm needs tables of one dim, not {} and {}", *first, *dim));
      return;
    }
    first = dim;
  }
  if (bottom.items().empty() || !first) return;
  const auto last = bottom.items().back().integer();
  if (!last || last == first) return;
  problems.add(
      bottom.path(),
      fmt::format("the last width must be the dim of the tables, {}, not {}", *first, *last));
}

constexpr char kNotYet[] = "not with training.tables yet";

void refuse(const View& field, ProblemList& problems) {
  if (field.present()) problems.add(field.path(), kNotYet);
}

void refuseChoices(const View& field, std::initializer_list<std::string_view> choices,
                   ProblemList& problems) {
  const auto chosen = field.text();
  if (chosen && std::find(choices.begin(), choices.end(), *chosen) != choices.end())
    problems.add(field.path(), fmt::format("{}: {}", *chosen, kNotYet));
}

// One needs the norm of the whole model's gradient, the other moves rows that nobody asked for.
void refuseOfOptimizer(const View& optimizer, ProblemList& problems) {
  refuse(optimizer["clipNorm"], problems);
  refuse(optimizer["weightDecay"], problems);
}

void checkNotYet(const View& spec, ProblemList& problems) {
  const View training = spec["training"];
  refuseChoices(spec["strategy"], {"AllReduce"}, problems);
  refuseOfOptimizer(training["optimizer"], problems);
  for (const View& table : training["tables"].items())
    refuseOfOptimizer(table["optimizer"], problems);
}

// Rows know the step that changed them last, and steps are versions in mode Sync alone.
void checkDeltas(const View& training, ProblemList& problems) {
  const View full = training["checkpoint"]["full"];
  if (!full.present()) return;
  if (!training["tables"].present()) problems.add(full.path(), "only with training.tables");
  const auto mode = training["update"]["mode"].text();
  if (mode == "Async" || mode == "BoundedDelay")  // an unknown one is named already
    problems.add(full.path(), "only with mode Sync");
}

}  // namespace

void checkColumns(const View& data, ProblemList& problems) {
  const auto format = data["format"].text();
  if (!format || !namesColumns(*format)) return;
  const View columns = data["columns"];
  checkNames(columns, "columns", problems);
  checkKinds(columns, problems);
  for (const View& column : columns.items()) {
    checkBelongs(column, "kind", {{"ids", {"Id"}}}, problems);
    if (*format == kMadeUp) {
      checkMadeUp(column, problems);
    } else if (column["ids"].present()) {
      problems.add(column["ids"].path(),
                   fmt::format("only with format {}, not {}", kMadeUp, *format));
    }
  }
}

void checkTables(const View& spec, ProblemList& problems) {
  const View training = spec["training"], tables = training["tables"];
  checkModel(training, problems);
  checkDeltas(training, problems);
  if (!tables.present()) return;
  checkNames(tables, "tables", problems);
  const View data = training["data"];
  const bool criteo = data["format"].text() == kCriteo;
  const std::set<std::string> known = featuresOf(data);
  for (const View& table : tables.items()) {
    checkHasFeatures(training["model"], table, problems);
    checkRows(table["rows"], problems);
    checkEviction(table["evict"], problems);
    checkBelongs(table["initial"], "distribution",
                 {{"scale", {"Uniform", "TruncatedNormal"}, true}}, problems);
    if (criteo || data["columns"].present()) checkFeatures(table, known, criteo, problems);
  }
  checkDeep(training, problems);
  checkInteraction(training, problems);
  checkNotYet(spec, problems);
}

}  // namespace trainyard::control::internal
