// Samples in memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/core/status.h"
#include "runtime/data/sample_stream.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

// Of one column of ids, sample after sample: those of sample i are ids[ends[i - 1] .. ends[i]).
struct FeatureIds {
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> ends;
};

// What the samples of tabular data have, by column name, in the order of the job's columns.
struct Columns {
  std::vector<std::string> features;  // of ids: kinds Id, Ids and Text
  std::vector<std::string> numbers;
  bool weighted = false;  // there is a column of kind Weight
  bool empty() const { return features.empty() && numbers.empty(); }
};

// A batch in host memory. Images are NHWC float32 in [0, 1] (pixels / 255); labels are class
// numbers. `keys` are the positions in the sample stream (training) or sample numbers (evaluation):
// dropout is keyed by them.
struct Batch {
  std::array<int, 3> shape{};  // height, width, channels
  std::vector<float> images;
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> keys;
  // Tabular data, which has no images: by Columns::features; [samples, Columns::numbers]. Labels
  // are 0 or 1.
  std::vector<FeatureIds> features;
  std::vector<float> numbers;
  std::vector<float> weights;  // of the samples, at least 0; empty: each has 1
  // By table of the job, of each of its occurrences in this batch (occurrencesOf() in
  // runtime/data/table_lookup.h): the row, `dim` floats. Not the dataset's to fill.
  std::vector<std::vector<float>> rows;
  int size() const { return static_cast<int>(labels.size()); }
};

// Immutable once loaded; thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual std::array<int, 3> shape() const = 0;
  virtual int classes() const = 0;
  // Hex SHA-256 over shape, classes, images and labels.
  virtual const std::string& fingerprint() const = 0;
  // Fills `out` (memory reused) with samples `samples`, keyed by `keys` (equally long).
  virtual void read(std::span<const std::int64_t> samples, std::span<const std::int64_t> keys,
                    Batch& out) const = 0;
  // Empty: samples are images.
  virtual const Columns& columns() const;
  // Of tabular data: Batch::features alone, for who looks ahead.
  virtual void readFeatures(std::span<const std::int64_t> /*samples*/,
                            std::vector<FeatureIds>& out) const {
    out.clear();
  }
};

struct DataSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> eval;  // null when the job names none
  SampleOrder order;              // in which `train` is read
  int prefetch = 0;               // steps that are read ahead of the one that is computed
};

// Opens what the job names.
//   idx        the files of MNIST's format, plain or gzip (told by content): images of unsigned
//   bytes
//              in 3 dimensions, labels in 1. One channel. Classes: data.classes, else the largest
//              training label + 1, at least 10; evaluation has the training data's shape and
//              classes.
//   synthetic  pictures that are a function of the sample number (evaluation samples follow the
//              training samples), made while reading: label sample % classes, the class's blocky
//              pattern under noise.
//   csv        text files whose first line names the columns, plain or gzip; data.columns says
//              which are read, and as what.
//   criteo     text files of Criteo's clicks, plain or gzip (internal/criteo.h); columns label, I1
//   to
//              I13, C1 to C26.
//   tfrecord   files of TensorFlow's examples, plain or gzip (internal/tfrecord.h); data.columns
//   says
//              which features are read, and as what.
//   synthetic_ctr  clicks with a planted truth, a function of the sample number (synthetic_ctr.h).
// Tabular data has the shape [1, 1, numbers of a sample], which may be 0, and 2 classes.
// Errors name field, file, what is wrong and what was expected, e.g.
// "data.images: /x/train.idx: magic 0x00000801, expected 0x00000803 (unsigned bytes, 3
// dimensions)": INVALID_ARGUMENT for fields and content, errno's code (e.g. NOT_FOUND) for files
// that cannot be read.
StatusOr<DataSplits> openData(const v1::DataSpec& spec);

}  // namespace trainyard::runtime
