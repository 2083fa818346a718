#include "cli/doctor/finding.h"

#include <algorithm>

#include "base/core/printable.h"
#include "base/core/strings.h"
#include "cli/live/text.h"
#include "fmt/format.h"

namespace trainyard::cli {
namespace {

constexpr int kWordWidth = 7;  // of the longest word

struct LevelLook {
  std::string_view word;
  std::string_view plural;
  Tone tone;
};

LevelLook lookOf(FindingLevel level) {
  switch (level) {
    case FindingLevel::kOk:
      return {"ok", "ok", Tone::kGood};
    case FindingLevel::kNote:
      return {"note", "notes", Tone::kPlain};
    case FindingLevel::kUnknown:
      return {"unknown", "unknown", Tone::kWarn};
    case FindingLevel::kWarning:
      return {"warning", "warnings", Tone::kWarn};
    case FindingLevel::kProblem:
      break;
  }
  return {"problem", "problems", Tone::kBad};
}

std::string adviceOf(const Status& why) {
  if (absl::IsPermissionDenied(why)) {
    return "ask for that right, or let somebody who has it run this";
  }
  if (absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why)) {
    return "try again; if it stays so, look whether the apiserver is well: kubectl get --raw "
           "'/readyz?verbose'";
  }
  return "try the same with kubectl, whose message may say more";
}

std::string sumLine(const Diagnosis& diagnosis) {
  std::vector<std::string> parts;
  for (const FindingLevel level :
       {FindingLevel::kProblem, FindingLevel::kWarning, FindingLevel::kUnknown}) {
    const int count = countOf(diagnosis, level);
    const LevelLook look = lookOf(level);
    if (level == FindingLevel::kProblem && count == 0) {
      parts.emplace_back("no problems");
    } else if (count > 0) {
      parts.push_back(fmt::format("{} {}", count, count == 1 ? look.word : look.plural));
    }
  }
  return join(parts, ", ");
}

// Whether the next one asks for the same, so that it is said once, below the last of them.
bool sharesAdvice(const std::vector<Finding>& findings, std::size_t at) {
  return at + 1 < findings.size() && findings[at + 1].group == findings[at].group &&
         findings[at + 1].advice == findings[at].advice;
}

}  // namespace

void FindingGroup::unknown(const std::string& what, const Status& why, std::string advice) {
  if (advice.empty()) advice = adviceOf(why);
  add(FindingLevel::kUnknown, fmt::format("{}: {}", what, fromAbsl(why.message())),
      std::move(advice));
}

void FindingGroup::add(FindingLevel level, std::string text, std::string advice) {
  findings_.push_back({name_, level, std::move(text), std::move(advice)});
}

int countOf(const Diagnosis& diagnosis, FindingLevel level) {
  return static_cast<int>(
      std::count_if(diagnosis.findings.begin(), diagnosis.findings.end(),
                    [&](const Finding& finding) { return finding.level == level; }));
}

std::string diagnosisText(const Diagnosis& diagnosis, bool colour) {
  std::string text;
  const std::vector<Finding>& findings = diagnosis.findings;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    if (i == 0 || finding.group != findings[i - 1].group)
      text += paint(finding.group, Tone::kBold, colour) + "\n";
    const LevelLook look = lookOf(finding.level);
    text += fmt::format("  {}  {}\n", paint(padRight(look.word, kWordWidth), look.tone, colour),
                        printable(finding.text));
    if (!finding.advice.empty() && !sharesAdvice(findings, i))
      text += fmt::format("{:{}}{}\n", "", kWordWidth + 6, printable(finding.advice));
  }
  return text + fmt::format("{}: {}\n", printable(diagnosis.place), sumLine(diagnosis));
}

nlohmann::ordered_json diagnosisJson(const Diagnosis& diagnosis) {
  nlohmann::ordered_json json;
  json["place"] = diagnosis.place;
  json["problems"] = countOf(diagnosis, FindingLevel::kProblem);
  json["warnings"] = countOf(diagnosis, FindingLevel::kWarning);
  json["unknown"] = countOf(diagnosis, FindingLevel::kUnknown);
  json["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : diagnosis.findings) {
    json["findings"].push_back({{"group", finding.group},
                                {"level", std::string(lookOf(finding.level).word)},
                                {"text", finding.text},
                                {"advice", finding.advice}});
  }
  return json;
}

}  // namespace trainyard::cli
