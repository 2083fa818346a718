#include "runtime/events/metrics_writer.h"

#include <algorithm>
#include <utility>

#include "base/process/files.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/events/append_file.h"

namespace trainyard::runtime {
namespace fs = std::filesystem;
namespace {

// Starts of one job within a second that are told apart.
constexpr int kMaxFilesPerSecond = 1000;

std::string jsonLine(std::int64_t step, UnixMillis at, std::span<const Scalar> scalars) {
  nlohmann::ordered_json line;
  line["step"] = step;
  for (const Scalar& scalar : scalars) line[std::string(scalar.name)] = scalar.value;
  line["time"] = static_cast<double>(at) / 1000;
  // Names come from our code, but a byte that is no UTF-8 must not throw.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// TensorBoard reads every file whose name contains "tfevents", in the order of the names: the
// suffix of a second start within one second keeps that order.
StatusOr<AppendFile> createEventFile(const fs::path& folder, std::string_view host,
                                     UnixMillis now) {
  std::string safe_host(host.empty() ? "localhost" : host);
  std::replace(safe_host.begin(), safe_host.end(), '/', '_');
  const std::string name = fmt::format("events.out.tfevents.{:010}.{}", now / 1000, safe_host);
  StatusOr<AppendFile> file = AppendFile::create(folder / name);
  for (int i = 1; absl::IsAlreadyExists(file.status()) && i < kMaxFilesPerSecond; ++i) {
    file = AppendFile::create(folder / fmt::format("{}.{:03}", name, i));
  }
  return file;
}

class FileMetricsWriter : public MetricsWriter {
 public:
  FileMetricsWriter(AppendFile lines, AppendFile events)
      : lines_(std::move(lines)), events_(std::move(events)) {}

  Status begin(UnixMillis now, std::int64_t first_step) {
    return events_.append(frameRecord(encodeFileVersion(now)) +
                          frameRecord(encodeSessionStart(now, first_step)));
  }

  Status record(std::int64_t step, UnixMillis at, std::span<const Scalar> scalars) override {
    const Status line = lines_.append(jsonLine(step, at, scalars));
    const Status event = events_.append(frameRecord(encodeScalars(at, step, scalars)));
    return line.ok() ? event : line;
  }

  Status text(std::int64_t step, UnixMillis at, std::string_view name,
              std::string_view markdown) override {
    return events_.append(frameRecord(encodeText(at, step, name, markdown)));
  }

  Status graph(UnixMillis at, std::string_view graph_def) override {
    return events_.append(frameRecord(encodeGraph(at, graph_def)));
  }

 private:
  AppendFile lines_;
  AppendFile events_;
};

}  // namespace

StatusOr<std::unique_ptr<MetricsWriter>> MetricsWriter::open(const fs::path& job_dir,
                                                             std::string_view host, UnixMillis now,
                                                             std::int64_t first_step) {
  const fs::path folder = job_dir / "events";
  TY_RETURN_IF_ERROR(makeDirectories(folder));
  TY_ASSIGN_OR_RETURN(AppendFile lines, AppendFile::openLines(job_dir / "metrics.jsonl"));
  TY_ASSIGN_OR_RETURN(AppendFile events, createEventFile(folder, host, now));
  auto writer = std::make_unique<FileMetricsWriter>(std::move(lines), std::move(events));
  TY_RETURN_IF_ERROR(writer->begin(now, first_step));
  return writer;
}

}  // namespace trainyard::runtime
