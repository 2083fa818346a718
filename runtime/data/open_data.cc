#include <algorithm>
#include <filesystem>
#include <system_error>

#include "fmt/format.h"
#include "runtime/data/dataset.h"
#include "runtime/data/internal/criteo.h"
#include "runtime/data/internal/csv.h"
#include "runtime/data/internal/field_range.h"
#include "runtime/data/internal/file_pattern.h"
#include "runtime/data/internal/idx.h"
#include "runtime/data/internal/order.h"
#include "runtime/data/internal/reading.h"
#include "runtime/data/internal/synthetic.h"
#include "runtime/data/internal/synthetic_ctr.h"
#include "runtime/data/internal/tfrecord.h"
#include "runtime/data/sample_stream.h"

namespace trainyard::runtime {
namespace {

using internal::checkRange;
using internal::IdxImages;

using Patterns = google::protobuf::RepeatedPtrField<std::string>;

constexpr int kMinIdxClasses = 10;
constexpr int kMaxClasses = 65536;
constexpr int kMaxPrefetch = 64;
constexpr std::int64_t kMaxImagePixels = std::int64_t{1} << 24;
constexpr std::int64_t kMaxPatternBytes = std::int64_t{1} << 30;

struct LabelledImages {
  IdxImages images;
  std::vector<std::uint8_t> labels;
};

StatusOr<LabelledImages> readPair(const std::string& images_field, const std::string& images_path,
                                  const std::string& labels_field, const std::string& labels_path,
                                  const std::string& cache) {
  LabelledImages pair;
  TY_ASSIGN_OR_RETURN(pair.labels, internal::readIdxLabels(labels_field, labels_path, cache));
  TY_ASSIGN_OR_RETURN(pair.images, internal::readIdxImages(images_field, images_path, cache));
  const auto labels = static_cast<std::int64_t>(pair.labels.size());
  if (labels != pair.images.count) {
    return invalidInput(fmt::format("{}: {}", labels_field, labels_path),
                        fmt::format("{} labels, expected {} as in {}: {}", labels,
                                    pair.images.count, images_field, images_path));
  }
  return pair;
}

Status checkLabels(const std::string& field, const std::string& path,
                   const std::vector<std::uint8_t>& labels, int classes) {
  const auto bad = std::find_if(labels.begin(), labels.end(),
                                [classes](std::uint8_t label) { return label >= classes; });
  if (bad == labels.end()) return absl::OkStatus();
  return invalidInput(fmt::format("{}: {}", field, path),
                      fmt::format("label {} of sample {}, expected 0 to {}", *bad,
                                  bad - labels.begin(), classes - 1));
}

StatusOr<DataSplits> openIdx(const v1::DataSpec& spec) {
  if (spec.images().empty())
    return invalidInput("training.data.images", "missing, expected a file's path");
  if (spec.labels().empty())
    return invalidInput("training.data.labels", "missing, expected a file's path");
  if (spec.eval_images().empty() != spec.eval_labels().empty()) {
    const char* absent =
        spec.eval_images().empty() ? "training.data.evalImages" : "training.data.evalLabels";
    return invalidInput(absent, "missing, expected evalImages and evalLabels together");
  }
  TY_ASSIGN_OR_RETURN(LabelledImages train,
                      readPair("training.data.images", spec.images(), "training.data.labels",
                               spec.labels(), spec.cache()));
  int classes =
      std::max(kMinIdxClasses, 1 + *std::max_element(train.labels.begin(), train.labels.end()));
  if (spec.has_classes()) {
    TY_RETURN_IF_ERROR(checkRange("training.data.classes", spec.classes(), 2, kMaxClasses));
    classes = spec.classes();
  }
  TY_RETURN_IF_ERROR(checkLabels("training.data.labels", spec.labels(), train.labels, classes));
  DataSplits splits;
  if (!spec.eval_images().empty()) {
    TY_ASSIGN_OR_RETURN(LabelledImages eval,
                        readPair("training.data.evalImages", spec.eval_images(),
                                 "training.data.evalLabels", spec.eval_labels(), spec.cache()));
    if (eval.images.height != train.images.height || eval.images.width != train.images.width) {
      return invalidInput(fmt::format("training.data.evalImages: {}", spec.eval_images()),
                          fmt::format("images of {}x{}, expected {}x{} as in training.data.images",
                                      eval.images.height, eval.images.width, train.images.height,
                                      train.images.width));
    }
    TY_RETURN_IF_ERROR(
        checkLabels("training.data.evalLabels", spec.eval_labels(), eval.labels, classes));
    splits.eval = internal::makeIdxDataset(std::move(eval.images), std::move(eval.labels), classes);
  }
  splits.train =
      internal::makeIdxDataset(std::move(train.images), std::move(train.labels), classes);
  return splits;
}

StatusOr<internal::SyntheticSpec> readSyntheticSpec(const v1::DataSpec& spec) {
  if (spec.shape_size() != 3) {
    return invalidInput(
        "training.data.shape",
        fmt::format("{} numbers, expected 3: height, width, channels", spec.shape_size()));
  }
  internal::SyntheticSpec out;
  std::int64_t pixels = 1;
  std::int64_t pattern = 1;
  for (int d = 0; d < 3; ++d) {
    out.shape[d] = spec.shape(d);
    TY_RETURN_IF_ERROR(checkRange("training.data.shape", spec.shape(d), 1, 65536));
    pixels *= spec.shape(d);
    pattern *= d == 0 ? (spec.shape(d) + 3) / 4 : spec.shape(d);  // internal/synthetic.h: blocks
  }
  if (pixels > kMaxImagePixels) {
    return invalidInput(
        "training.data.shape",
        fmt::format("{} numbers per image, expected at most {}", pixels, kMaxImagePixels));
  }
  TY_RETURN_IF_ERROR(checkRange("training.data.classes", spec.classes(), 2, kMaxClasses));
  if (pattern * spec.classes() > kMaxPatternBytes) {
    return invalidInput("training.data.classes",
                        fmt::format("{}, expected at most {} for images of this shape",
                                    spec.classes(), kMaxPatternBytes / pattern));
  }
  TY_RETURN_IF_ERROR(internal::checkSamples(spec));
  TY_RETURN_IF_ERROR(checkRange("training.data.evalSamples", spec.eval_samples(), 0, kMaxSamples));
  out.classes = spec.classes();
  out.samples = spec.samples();
  return out;
}

StatusOr<DataSplits> openSynthetic(const v1::DataSpec& spec) {
  TY_ASSIGN_OR_RETURN(internal::SyntheticSpec part, readSyntheticSpec(spec));
  DataSplits splits;
  splits.train = internal::makeSyntheticDataset(part);
  if (spec.eval_samples() > 0) {
    part.first = part.samples;
    part.samples = spec.eval_samples();
    splits.eval = internal::makeSyntheticDataset(part);
  }
  return splits;
}

StatusOr<DataSplits> openSyntheticCtr(const v1::DataSpec& spec) {
  TY_ASSIGN_OR_RETURN(internal::SyntheticCtrSpec part, internal::readSyntheticCtrSpec(spec));
  TY_RETURN_IF_ERROR(checkRange("training.data.evalSamples", spec.eval_samples(), 0, kMaxSamples));
  DataSplits splits;
  splits.train = internal::makeSyntheticCtr(part);
  if (spec.eval_samples() > 0) {
    part.first = part.samples;
    part.samples = spec.eval_samples();
    splits.eval = internal::makeSyntheticCtr(std::move(part));
  }
  return splits;
}

using ReadFiles = decltype(&internal::readCsv);

StatusOr<std::unique_ptr<Dataset>> openFiles(const std::string& field, const Patterns& patterns,
                                             std::span<const internal::Column> columns,
                                             ReadFiles read, const internal::Reading& reading) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                      internal::filesOf(field, {patterns.begin(), patterns.end()}));
  return read(field, paths, columns, reading);
}

Status checkFolder(const char* field, const std::string& folder) {
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  return invalidInput(fmt::format("{}: {}", field, folder), "no such folder");
}

// Of any format of files with columns.
StatusOr<DataSplits> openTables(const v1::DataSpec& spec, ReadFiles read) {
  TY_ASSIGN_OR_RETURN(const std::vector<internal::Column> columns, internal::readColumns(spec));
  if (spec.files().empty())
    return invalidInput("training.data.files", "missing, expected paths of files");
  TY_ASSIGN_OR_RETURN(const SampleOrder order, internal::readOrder(spec));
  TY_RETURN_IF_ERROR(checkFolder("training.data.scratch", spec.scratch()));
  internal::Reading reading{order.maxSamples(), spec.scratch(), spec.cache()};
  DataSplits splits;
  TY_ASSIGN_OR_RETURN(splits.train,
                      openFiles("training.data.files", spec.files(), columns, read, reading));
  if (!spec.eval_files().empty()) {
    reading.samples_max = kMaxOrderedSamples;
    TY_ASSIGN_OR_RETURN(splits.eval, openFiles("training.data.evalFiles", spec.eval_files(),
                                               columns, read, reading));
  }
  return splits;
}

StatusOr<DataSplits> openFormat(const v1::DataSpec& spec) {
  if (spec.format() == "idx") return openIdx(spec);
  if (spec.format() == "synthetic") return openSynthetic(spec);
  if (spec.format() == "csv") return openTables(spec, internal::readCsv);
  if (spec.format() == "criteo") return openTables(spec, internal::readCriteo);
  if (spec.format() == "tfrecord") return openTables(spec, internal::readTfRecord);
  if (spec.format() == "synthetic_ctr") return openSyntheticCtr(spec);
  return invalidInput(
      "training.data.format",
      fmt::format("\"{}\", expected idx, synthetic, csv, criteo, tfrecord or synthetic_ctr",
                  spec.format()));
}

}  // namespace

StatusOr<DataSplits> openData(const v1::DataSpec& spec) {
  TY_RETURN_IF_ERROR(checkFolder("training.data.cache", spec.cache()));
  TY_ASSIGN_OR_RETURN(DataSplits splits, openFormat(spec));
  TY_ASSIGN_OR_RETURN(splits.order, internal::readOrder(spec));
  TY_RETURN_IF_ERROR(checkRange("training.data.prefetch", spec.prefetch(), 0, kMaxPrefetch));
  splits.prefetch = spec.prefetch();
  return splits;
}

}  // namespace trainyard::runtime
