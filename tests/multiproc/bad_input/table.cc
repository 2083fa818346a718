#include "tests/multiproc/bad_input/table.h"

#include <set>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "re2/re2.h"

namespace trainyard {
namespace {

Status setField(std::string_view key, std::string_view value, BadInputRow* row) {
  if (key == "do") {
    row->preparation.emplace_back(value);
  } else if (key == "run") {
    row->command = value;
  } else if (key == "exit" || key == "keeps") {
    const auto number = parseNumber<int>(value == "nothing" ? "-1" : value);
    if (!number) return invalidInput(key, fmt::format("\"{}\" is no number", value));
    (key == "exit" ? row->exit_code : row->keeps) = *number;
  } else if (key == "error" || key == "result" || key == "says") {
    if (!row->answer.empty()) return invalidInput(key, "a row has one answer");
    row->answer = value;
    row->answer_in = key == "error"    ? AnswerIn::kError
                     : key == "result" ? AnswerIn::kResult
                                       : AnswerIn::kSays;
    if (!RE2(row->answer).ok()) return invalidInput(key, "is no regular expression");
  } else if (key == "beside" && value == "a running job") {
    row->beside_job = true;
  } else if (key == "needs" && value == "privileges") {
    row->privileged = true;
  } else {
    return invalidInput(key, fmt::format("unknown: \"{}\"", value));
  }
  return absl::OkStatus();
}

Status checkRows(const std::vector<BadInputRow>& rows) {
  std::set<std::string> names;
  for (const BadInputRow& row : rows) {
    if (!names.insert(row.name).second) return invalidInput(row.name, "is there twice");
    if (row.command.empty() || row.answer.empty()) {
      return invalidInput(row.name, "needs a command and an answer");
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<BadInputRow>> parseBadInputTable(std::string_view text) {
  std::vector<BadInputRow> rows;
  int number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#') continue;
    const std::string place = fmt::format("line {}", number);
    if (line.front() == '[' && line.back() == ']') {
      rows.emplace_back().name = line.substr(1, line.size() - 2);
      continue;
    }
    const auto [key, value] = splitFirst(line, ':');
    if (rows.empty()) return invalidInput(place, "before the first row");
    TY_RETURN_IF_ERROR(annotate(setField(trim(key), trim(value), &rows.back()), place));
  }
  TY_RETURN_IF_ERROR(checkRows(rows));
  return rows;
}

}  // namespace trainyard
