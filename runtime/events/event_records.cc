#include "runtime/events/event_records.h"

#include <bit>
#include <span>

#include "base/core/crc32c.h"
#include "runtime/events/internal/wire_format.h"

namespace trainyard::runtime {
namespace {

using internal::appendBytes;
using internal::appendKey;
using internal::appendLittleEndian;
using internal::appendVarint;
using internal::kFixed32;
using internal::kFixed64;
using internal::kVarint;

void appendChecksum(std::string& out, std::string_view of) {
  appendLittleEndian(out, maskedCrc32c(std::as_bytes(std::span(of))));
}

// Event: double wall_time = 1, int64 step = 2, then one of string file_version = 3, bytes graph_def
// = 4, Summary summary = 5, SessionLog session_log = 7.
std::string encodeEvent(UnixMillis at, std::int64_t step, std::uint32_t field,
                        std::string_view what) {
  std::string event;
  appendKey(event, 1, kFixed64);
  appendLittleEndian(event, std::bit_cast<std::uint64_t>(static_cast<double>(at) / 1000));
  appendKey(event, 2, kVarint);
  appendVarint(event, static_cast<std::uint64_t>(step));
  appendBytes(event, field, what);
  return event;
}

}  // namespace

std::string frameRecord(std::string_view data) {
  std::string record;
  record.reserve(data.size() + 16);
  appendLittleEndian(record, static_cast<std::uint64_t>(data.size()));
  appendChecksum(record, record);
  record.append(data);
  appendChecksum(record, data);
  return record;
}

std::string encodeFileVersion(UnixMillis at) {
  return encodeEvent(at, 0, 3, "brain.Event:2");
}

std::string encodeSessionStart(UnixMillis at, std::int64_t first_step) {
  std::string session;  // SessionLog: SessionStatus status = 1, START = 1
  appendKey(session, 1, kVarint);
  appendVarint(session, 1);
  return encodeEvent(at, first_step, 7, session);
}

std::string encodeText(UnixMillis at, std::int64_t step, std::string_view name,
                       std::string_view markdown) {
  constexpr std::uint64_t kStringType = 7;  // DT_STRING
  std::string dimension;                    // TensorShapeProto.Dim: int64 size = 1
  appendKey(dimension, 1, kVarint);
  appendVarint(dimension, 1);
  std::string shape;  // TensorShapeProto: repeated Dim dim = 2
  appendBytes(shape, 2, dimension);
  std::string tensor;  // TensorProto: dtype = 1, tensor_shape = 2, repeated bytes string_val = 8
  appendKey(tensor, 1, kVarint);
  appendVarint(tensor, kStringType);
  appendBytes(tensor, 2, shape);
  appendBytes(tensor, 8, markdown);
  std::string plugin;  // SummaryMetadata.PluginData: string plugin_name = 1
  appendBytes(plugin, 1, "text");
  std::string metadata;  // SummaryMetadata: PluginData plugin_data = 1
  appendBytes(metadata, 1, plugin);
  std::string value;  // Summary.Value: string tag = 1, TensorProto tensor = 8, metadata = 9
  appendBytes(value, 1, name);
  appendBytes(value, 8, tensor);
  appendBytes(value, 9, metadata);
  std::string summary;
  appendBytes(summary, 1, value);
  return encodeEvent(at, step, 5, summary);
}

std::string encodeGraph(UnixMillis at, std::string_view graph_def) {
  return encodeEvent(at, 0, 4, graph_def);
}

std::string encodeScalars(UnixMillis at, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;  // Summary: repeated Value value = 1
  for (const Scalar& scalar : scalars) {
    std::string value;  // Value: string tag = 1, float simple_value = 2
    appendBytes(value, 1, scalar.name);
    appendKey(value, 2, kFixed32);
    appendLittleEndian(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    appendBytes(summary, 1, value);
  }
  return encodeEvent(at, step, 5, summary);
}

}  // namespace trainyard::runtime
