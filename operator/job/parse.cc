#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/core/printable.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "operator/job/internal/schema.h"
#include "operator/job/internal/validate.h"
#include "operator/job/internal/yaml.h"
#include "operator/job/job.h"
#include "operator/job/written.h"

namespace trainyard::control {
namespace {

using Json = nlohmann::ordered_json;

// Members of metadata that the apiserver writes and a TrainingJob message does not hold.
constexpr std::array<const char*, 5> kDropped = {"deletionGracePeriodSeconds", "generateName",
                                                 "managedFields", "ownerReferences", "selfLink"};

// The file holds something else altogether: to go on would call every field unknown.
bool checkKind(const Json& job, internal::ProblemList& problems) {
  bool right = true;
  for (const auto& [field, expected] :
       {std::pair{"apiVersion", internal::kApiVersion}, std::pair{"kind", internal::kKind}}) {
    const auto found = job.find(field);
    if (found != job.end() && *found == std::string(expected)) continue;
    problems.add(field, found == job.end()
                            ? fmt::format("missing: expected {}", expected)
                            : fmt::format("expected {}, got {}", expected, found->dump()));
    right = false;
  }
  return right;
}

// By line; what has none (a --set, the whole file) comes last.
void sortProblems(std::vector<JobProblem>& problems) {
  std::stable_sort(problems.begin(), problems.end(), [](const JobProblem& a, const JobProblem& b) {
    const auto key = [](const JobProblem& p) { return std::pair(p.line == 0, p.line); };
    return key(a) < key(b);
  });
}

// Of metadata, what the one who writes a job has a say in.
constexpr std::array<const char*, 4> kSent = {"name", "namespace", "labels", "annotations"};

// As kubectl sends what it read: without null members, 2.0 as 2.
void normalize(Json& value) {
  if (value.is_object()) {
    for (auto member = value.begin(); member != value.end();) {
      if (member->is_null()) {
        member = value.erase(member);
        continue;
      }
      normalize(*member);
      ++member;
    }
  } else if (value.is_array()) {
    for (Json& item : value) normalize(item);
  } else if (value.is_number_float()) {
    constexpr double kExact = 9007199254740992;  // 2^53
    const double number = value.get<double>();
    if (std::abs(number) <= kExact && std::floor(number) == number) {
      value = static_cast<std::int64_t>(number);
    }
  }
}

Json asSent(Json job) {
  job.erase("status");
  const Json metadata = std::exchange(job["metadata"], Json::object());
  for (const char* const member : kSent) {
    if (metadata.contains(member)) job["metadata"][member] = metadata[member];
  }
  normalize(job);
  return job;
}

// Everything from text to a document that may become a message; problems otherwise. `written` (may
// be null): see written.h.
Json readDocument(std::string_view text, std::string_view file, const ParseOptions& options,
                  std::vector<JobProblem>* problems, Json* written) {
  internal::YamlDocument document;
  if (!internal::readYaml(text, file, &document, problems)) return {};
  Json& job = document.value;
  if (!job.is_object()) {
    problems->push_back({std::string(file), 1, "", "expected a TrainingJob (a mapping)"});
    return {};
  }
  for (const auto& [path, value] : options.overrides) {
    internal::applyOverride(path, value, job, document.locations, problems);
  }
  if (!problems->empty()) return {};
  internal::ProblemList list(document.locations, problems);
  if (!checkKind(job, list)) return {};
  const Json before = written == nullptr ? Json() : job;
  internal::applyDefaults(job, internal::jobSchema());
  internal::validate(job, internal::jobSchema(), list);
  internal::validateAcross(job, list);
  for (const char* const member : kDropped) {
    if (problems->empty()) job["metadata"].erase(member);
  }
  if (problems->empty() && written != nullptr) *written = asSent(before);
  return std::move(job);
}

StatusOr<v1::TrainingJob> parse(std::string_view text, std::string_view file,
                                const ParseOptions& options, std::vector<JobProblem>* problems,
                                Json* written) {
  std::vector<JobProblem> found;
  const Json document = readDocument(text, file, options, &found, written);
  v1::TrainingJob job;
  if (found.empty()) {
    const Status status = fromJson(document, &job);
    if (!status.ok()) found.push_back({std::string(file), 0, "", std::string(status.message())});
  }
  sortProblems(found);
  if (problems != nullptr) *problems = found;
  if (!found.empty()) return absl::InvalidArgumentError(found.front().text());
  return job;
}

}  // namespace

std::string JobProblem::text() const {
  std::string place = line > 0 ? fmt::format("{}:{}", file, line) : file;
  if (!field.empty()) place += fmt::format(": {}", field);
  // Keys, values and file names may hold anything.
  return printable(fmt::format("{}: {}", place, message));
}

StatusOr<v1::TrainingJob> parseJob(std::string_view text, std::string_view file,
                                   const ParseOptions& options, std::vector<JobProblem>* problems) {
  return parse(text, file, options, problems, nullptr);
}

StatusOr<v1::TrainingJob> loadJob(const std::string& path, const ParseOptions& options,
                                  std::vector<JobProblem>* problems) {
  return loadWrittenJob(path, options, problems, nullptr);
}

StatusOr<v1::TrainingJob> loadWrittenJob(const std::string& path, const ParseOptions& options,
                                         std::vector<JobProblem>* problems, Json* written) {
  constexpr std::size_t kTooLarge = 4 << 20;  // readYaml() names its own, smaller limit
  const auto refuse = [&](int error) {
    Status status = errnoStatus(error, path);
    if (problems != nullptr) *problems = {{path, 0, "", std::strerror(error)}};
    return status;
  };
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return refuse(errno);
  if (S_ISDIR(info.st_mode)) return refuse(EISDIR);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return refuse(errno);
  std::string text(kTooLarge, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return refuse(EIO);
  return parse(text, path, options, problems, written);
}

}  // namespace trainyard::control
