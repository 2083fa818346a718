// The bytes of a TensorBoard event file: records of TensorFlow's TFRecord framing
// (tensorflow/core/lib/io/record_writer.h), each holding an Event message
// (tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto). The few fields in
// use are encoded here by hand. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/core/clock.h"

namespace trainyard::runtime {

// One named number of a step, e.g. {"loss", 0.31}; `name` is TensorBoard's tag.
struct Scalar {
  std::string_view name;
  double value = 0;
};

// length (uint64), masked CRC of the length, `data`, masked CRC of `data`; numbers little-endian.
std::string frameRecord(std::string_view data);

// The Event that begins every file.
std::string encodeFileVersion(UnixMillis at);
// SessionLog START: a reader that has seen an earlier one forgets the records of `first_step` and
// later steps, because training has gone back and writes them again.
std::string encodeSessionStart(UnixMillis at, std::int64_t first_step);
// A serialized GraphDef, for TensorBoard's page Graphs.
std::string encodeGraph(UnixMillis at, std::string_view graph_def);
// A Summary with one simple_value (float32) per scalar.
std::string encodeScalars(UnixMillis at, std::int64_t step, std::span<const Scalar> scalars);

// A Summary with one text (Markdown) for TensorBoard's text page, `name` its tag.
std::string encodeText(UnixMillis at, std::int64_t step, std::string_view name,
                       std::string_view markdown);

}  // namespace trainyard::runtime
