// write_sample_events JOB_DIR: two starts of one job, the second from a checkpoint in between. Step
// s has the loss 1 / s in the first start and 2 / s in the second.
#include <cstdio>
#include <filesystem>

#include "runtime/events/metrics_writer.h"

namespace trainyard::runtime {
namespace {

Status writeStart(const std::filesystem::path& job_dir, UnixMillis now, std::int64_t first,
                  std::int64_t last, double loss) {
  TY_ASSIGN_OR_RETURN(auto writer, MetricsWriter::open(job_dir, "sample-host", now, first));
  TY_RETURN_IF_ERROR(writer->text(first, now, "placement",
                                  "| fc8_bia | 0 to 500 of 1,000, axis 0 | ps-0 | 2,000 |\n"));
  for (std::int64_t step = first; step <= last; ++step) {
    const Scalar scalars[] = {{"loss", loss / static_cast<double>(step)},
                              {"learning_rate", 0.001},
                              {"examples_per_second", 2500.5}};
    TY_RETURN_IF_ERROR(writer->record(step, now + step * 250, scalars));
  }
  return writer->scalar(last, now + last * 250, "accuracy", 0.875);
}

Status write(const std::filesystem::path& job_dir) {
  TY_RETURN_IF_ERROR(writeStart(job_dir, 1'700'000'000'000, 1, 60, 1));
  return writeStart(job_dir, 1'700'000'100'000, 41, 100, 2);
}

}  // namespace
}  // namespace trainyard::runtime

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: write_sample_events JOB_DIR\n", stderr), 2;
  const auto status = trainyard::runtime::write(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
