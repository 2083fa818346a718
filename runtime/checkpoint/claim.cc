#include "runtime/checkpoint/claim.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/core/failpoint.h"
#include "base/core/json_depth.h"
#include "base/core/strings.h"
#include "base/json/members.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPrefix = "writer-";
constexpr std::string_view kSuffix = ".json";
constexpr std::size_t kMaxBytes = 1u << 20;
// A writer from before as many claims has ended, or ends at its next look.
constexpr std::size_t kStartsMax = 64;
// Others may take the number that was free a moment ago.
constexpr int kAttempts = 16;

struct Record {
  Writer writer;
  std::vector<ClaimStart> starts;  // of this claim, once that is known, and those before
};

std::string pathOf(const std::string& dir, std::int64_t number) {
  return fmt::format("{}/{}{}{}", dir, kPrefix, number, kSuffix);
}

// Numbers of the claims that are there, ascending. An absent directory has none.
StatusOr<std::vector<std::int64_t>> claimsIn(const std::string& dir) {
  std::vector<std::int64_t> numbers;
  TY_ASSIGN_OR_RETURN(const std::vector<StoredFile> files, listStored(dir));
  for (const StoredFile& file : files) {
    std::string_view digits = file.name;
    if (!digits.starts_with(kPrefix) || !digits.ends_with(kSuffix)) continue;
    digits.remove_prefix(kPrefix.size());
    digits.remove_suffix(kSuffix.size());
    const auto number = parseNumber<std::int64_t>(digits);
    if (number && *number > 0 && fmt::format("{}", *number) == digits) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string toText(const Record& record) {
  Json starts = Json::array();
  for (const ClaimStart& start : record.starts) {
    starts.push_back(
        {{"number", start.number}, {"step", start.newest.step}, {"epoch", start.newest.epoch}});
  }
  const nlohmann::ordered_json json = {{"jobUid", record.writer.job_uid},
                                       {"task", record.writer.task},
                                       {"created", record.writer.created},
                                       {"start", record.writer.start},
                                       {"starts", std::move(starts)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::int64_t wideNumberAt(const Json& object, std::string_view name) {
  const Json& value = member(object, name);
  return value.is_number_integer() ? value.get<std::int64_t>() : -1;
}

std::uint32_t toUint(std::int64_t number) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(number, 0, UINT32_MAX));
}

Record fromText(const std::string& text) {
  if (jsonIsTooDeep(text)) return {};
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Record record;
  record.writer = {textAt(json, "jobUid"), textAt(json, "task"),
                   toUint(wideNumberAt(json, "created")), toUint(wideNumberAt(json, "start"))};
  const Json& starts = member(json, "starts");
  for (std::size_t i = 0; starts.is_array() && i < starts.size(); ++i) {
    record.starts.push_back({wideNumberAt(starts[i], "number"),
                             {wideNumberAt(starts[i], "step"), wideNumberAt(starts[i], "epoch")}});
  }
  std::sort(record.starts.begin(), record.starts.end(),
            [](const ClaimStart& a, const ClaimStart& b) { return a.number < b.number; });
  return record;
}

// What cannot be read says nothing, unless it may be read later.
StatusOr<Record> readRecord(const std::string& dir, std::int64_t number) {
  const StatusOr<std::string> text = readStored(pathOf(dir, number), kMaxBytes);
  if (mayPass(dir, text.status())) return text.status();
  return text.ok() ? fromText(*text) : Record{};
}

std::string describe(const Writer& writer) {
  return fmt::format("{} (created {}, start {})", writer.task, writer.created, writer.start);
}

Status displaced(const std::string& dir, std::int64_t number) {
  return absl::AbortedError(fmt::format("{} writes to {} now: {} says so",
                                        describe(readRecord(dir, number).value_or(Record{}).writer),
                                        dir, fmt::format("{}{}{}", kPrefix, number, kSuffix)));
}

bool isLater(const Writer& a, const Writer& b) {
  return a.job_uid == b.job_uid && a.task == b.task &&
         std::tie(a.created, a.start) > std::tie(b.created, b.start);
}

// Several may be about to make a claim of one number.
Status write(const std::string& path, const Record& record, bool exclusively) {
  TY_ASSIGN_OR_RETURN(const auto file, createStored(path, Writers::kSeveral));
  TY_RETURN_IF_ERROR(file->write(toText(record)));
  return exclusively ? file->commitExclusively() : file->commit();
}

}  // namespace

StatusOr<ClaimHistory> ClaimHistory::read(const std::string& dir) {
  const StatusOr<std::vector<std::int64_t>> numbers = claimsIn(dir);
  if (mayPass(dir, numbers.status())) return numbers.status();
  if (!numbers.ok() || numbers->empty()) return ClaimHistory("", {});
  TY_ASSIGN_OR_RETURN(Record record, readRecord(dir, numbers->back()));
  return ClaimHistory(std::move(record.writer.job_uid), std::move(record.starts));
}

bool ClaimHistory::isVoid(const Manifest& manifest) const {
  const StepName name{manifest.step, manifest.epoch};
  return manifest.writer > 0 && manifest.job_uid == job_uid_ &&
         std::any_of(starts_.begin(), starts_.end(), [&](const ClaimStart& later) {
           return later.number > manifest.writer && name > later.newest;
         });
}

Claim::Claim(std::string dir, Writer writer) : dir_(std::move(dir)), writer_(std::move(writer)) {}

Status Claim::hold() {
  if (!lost_.ok()) return lost_;
  if (number_ == 0) {
    const Status taken = take();
    if (absl::IsAborted(taken)) lost_ = taken;
    return taken;
  }
  TY_ASSIGN_OR_RETURN(const std::vector<std::int64_t> numbers, claimsIn(dir_));
  if (!numbers.empty() && numbers.back() > number_) lost_ = displaced(dir_, numbers.back());
  return lost_;
}

// The claim stands before the manifests are looked at: what a former writer commits after it has
// seen no claim is among them.
Status Claim::take() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    TY_ASSIGN_OR_RETURN(const std::vector<std::int64_t> before, claimsIn(dir_));
    const std::int64_t newest = before.empty() ? 0 : before.back();
    Record record;
    if (newest > 0) {
      TY_ASSIGN_OR_RETURN(record, readRecord(dir_, newest));
    }
    if (isLater(record.writer, writer_)) return displaced(dir_, newest);
    if (record.writer.job_uid != writer_.job_uid) record.starts.clear();
    record.writer = writer_;
    const std::string path = pathOf(dir_, newest + 1);
    const Status made = write(path, record, /*exclusively=*/true);
    if (absl::IsAlreadyExists(made)) continue;
    TY_RETURN_IF_ERROR(made);
    hitFailpoint("checkpoint.claim.made", newest + 1);
    TY_ASSIGN_OR_RETURN(const std::vector<Manifest> manifests, readManifests(dir_, nullptr));
    record.starts.push_back({newest + 1, {-1, -1}});
    if (!manifests.empty())
      record.starts.back().newest = {manifests.front().step, manifests.front().epoch};
    if (record.starts.size() > kStartsMax) record.starts.erase(record.starts.begin());
    TY_RETURN_IF_ERROR(write(path, record, /*exclusively=*/false));
    number_ = newest + 1;
    // The new one says all that they say.
    for (const std::int64_t number : before) static_cast<void>(removeStored(pathOf(dir_, number)));
    return absl::OkStatus();
  }
  return absl::UnavailableError(fmt::format("{}: others claim it again and again", dir_));
}

}  // namespace trainyard::runtime
