// Clicks without files, and with a truth that is known: for tests and benches of tables.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/core/status.h"
#include "runtime/data/dataset.h"
#include "runtime/data/internal/columns.h"

namespace trainyard::runtime::internal {

struct SyntheticCtrSpec {
  std::vector<Column> columns;  // of kinds Id, Number and Label
  std::int64_t first = 0;       // number of sample 0 in the endless sequence of samples
  std::int64_t samples = 0;
  double drift = 0;               // how often an id is replaced
  std::int64_t pass_samples = 0;  // within so many samples
};

// Sample n is a function of n and of the names of columns (and how many ids there are), on every
// machine the same but for the last bits of its exp, log, pow and cos.
//   Id      by Zipf's law (zipf.h), its ranks strewn over all of 64 bits, each column's otherwise
//   Number  uniform in [-1, 1)
//   Label   1 with probability 1 / (1 + exp(-logit))
// logit = -1.5 + the weights of the ids + the products of the factors of each two ids + the numbers
// times their weights. Weights and factors belong to (column, id), normal and uniform, and are so
// scaled that the logit's deviation is 1.3 for any number of columns and ids: about 24 % of the
// labels are 1, and who knows the truth has an AUC of about 0.79.
// With drift an id comes to an end at a sample of its own, and every pass_samples / drift samples
// after it; a new one takes its place, which means the same. So the set of ids that are alive is as
// large at any time, the truth is as easy to learn, and only what was learnt of an id is lost with
// it.
class SyntheticCtr : public ColumnsDataset {
 public:
  using ColumnsDataset::ColumnsDataset;
  // The logit of the probability that the label is 1: no model can know more.
  virtual double oracleLogit(std::int64_t sample) const = 0;
};

// About 0.15 us a sample and column of ids.
std::unique_ptr<SyntheticCtr> makeSyntheticCtr(SyntheticCtrSpec spec);

// The training samples of a job. Errors name the field: INVALID_ARGUMENT.
StatusOr<SyntheticCtrSpec> readSyntheticCtrSpec(const v1::DataSpec& spec);

}  // namespace trainyard::runtime::internal
