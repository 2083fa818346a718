#include "runtime/events/event_records.h"

#include <bit>
#include <span>

#include "base/core/crc32c.h"

namespace trainyard::runtime {
namespace {

template <typename T>
void appendLittleEndian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// Protobuf's wire format: a key is (field number << 3 | wire type).
enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void appendVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void appendKey(std::string& out, std::uint32_t field, WireType type) {
  appendVarint(out, field << 3 | type);
}

void appendBytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  appendKey(out, field, kBytes);
  appendVarint(out, bytes.size());
  out.append(bytes);
}

void appendChecksum(std::string& out, std::string_view of) {
  appendLittleEndian(out, maskedCrc32c(std::as_bytes(std::span(of))));
}

// Event: double wall_time = 1, int64 step = 2, then one of string file_version = 3, Summary summary
// = 5, SessionLog session_log = 7.
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
