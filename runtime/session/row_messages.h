// What a session says of rows of the job's embedding tables, and its bytes (message.h). Unlike
// arrays of variables, which are the same in every step, rows are in the messages themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/train/row_exchange.h"

namespace trainyard::runtime::session {

// What becomes of the rows that a sample has of one feature; where the program asks nothing else.
enum class Combining : std::uint8_t { kSum, kMean, kSqrtN };

struct SessionTable {
  std::string name;
  std::uint32_t dim = 1;
  Combining combiner = Combining::kMean;
};

struct LookUp {
  std::uint32_t table = 0;
  std::vector<std::uint64_t> ids;
};

// Of one table: an id may come more than once, here and in other messages of the turn.
struct PushRows {
  std::uint32_t table = 0;
  std::vector<std::uint64_t> ids;
  std::vector<std::uint32_t> counts;  // by id: occurrences in the samples
  std::vector<float> sums;            // [ids, dim]: over this worker's samples
};

// Of the samples at [first, first + count) of the stream of samples.
struct LookAhead {
  std::int64_t first = 0;
  std::int32_t count = 0;
  RowIds ids;  // by table
};

std::string encode(std::span<const SessionTable> tables);
std::string encode(const LookUp& look_up);
std::string encode(const PushRows& push);
std::string encode(const LookAhead& ahead);
// [ids, dim], in the order of the ids.
std::string encodeRows(std::span<const float> rows);

StatusOr<std::vector<SessionTable>> decodeTables(std::string_view body);
StatusOr<LookUp> decodeLookUp(std::string_view body, std::span<const SessionTable> tables);
StatusOr<PushRows> decodePushRows(std::string_view body, std::span<const SessionTable> tables);
StatusOr<LookAhead> decodeLookAhead(std::string_view body, std::size_t tables);
// Into all of `rows`.
Status decodeRows(std::string_view body, std::span<float> rows);

}  // namespace trainyard::runtime::session
