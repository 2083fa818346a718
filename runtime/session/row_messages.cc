#include "runtime/session/row_messages.h"

#include <cstring>

#include "runtime/session/body.h"
#include "runtime/session/message.h"

namespace trainyard::runtime::session {
namespace {

constexpr std::uint32_t kMostDim = 1 << 20;

}  // namespace

std::string encode(std::span<const SessionTable> tables) {
  BodyWriter writer;
  writer.number(static_cast<std::uint32_t>(tables.size()));
  for (const SessionTable& table : tables)
    writer.text(table.name).number(table.dim).number(static_cast<std::uint8_t>(table.combiner));
  return writer.take();
}

StatusOr<std::vector<SessionTable>> decodeTables(std::string_view body) {
  BodyReader reader(body);
  std::vector<SessionTable> tables;
  const auto count = reader.number<std::uint32_t>();
  for (std::uint32_t t = 0; t < count && !reader.failed(); ++t) {
    SessionTable& table = tables.emplace_back();
    table.name = reader.text();
    table.dim = reader.number<std::uint32_t>();
    const auto combiner = reader.number<std::uint8_t>();
    if (table.name.empty() || table.dim < 1 || table.dim > kMostDim ||
        combiner > static_cast<std::uint8_t>(Combining::kSqrtN)) {
      return damaged(Kind::kWelcome);
    }
    table.combiner = static_cast<Combining>(combiner);
  }
  if (!reader.whole()) return damaged(Kind::kWelcome);
  return tables;
}

std::string encode(const LookUp& look_up) {
  return BodyWriter().number(look_up.table).numbers(std::span(look_up.ids)).take();
}

StatusOr<LookUp> decodeLookUp(std::string_view body, std::span<const SessionTable> tables) {
  BodyReader reader(body);
  LookUp look_up;
  look_up.table = reader.number<std::uint32_t>();
  look_up.ids = reader.numbers<std::uint64_t>();
  if (!reader.whole() || look_up.table >= tables.size()) return damaged(Kind::kLookUp);
  return look_up;
}

std::string encodeRows(std::span<const float> rows) {
  return std::string(reinterpret_cast<const char*>(rows.data()), rows.size_bytes());
}

Status decodeRows(std::string_view body, std::span<float> rows) {
  if (body.size() != rows.size_bytes()) return damaged(Kind::kRows);
  if (!rows.empty()) std::memcpy(rows.data(), body.data(), body.size());
  return absl::OkStatus();
}

std::string encode(const PushRows& push) {
  return BodyWriter()
      .number(push.table)
      .numbers(std::span(push.ids))
      .numbers(std::span(push.counts))
      .numbers(std::span(push.sums))
      .take();
}

StatusOr<PushRows> decodePushRows(std::string_view body, std::span<const SessionTable> tables) {
  BodyReader reader(body);
  PushRows push;
  push.table = reader.number<std::uint32_t>();
  push.ids = reader.numbers<std::uint64_t>();
  push.counts = reader.numbers<std::uint32_t>();
  push.sums = reader.numbers<float>();
  if (!reader.whole() || push.table >= tables.size() || push.counts.size() != push.ids.size() ||
      push.sums.size() != push.ids.size() * tables[push.table].dim) {
    return damaged(Kind::kPushRows);
  }
  return push;
}

std::string encode(const LookAhead& ahead) {
  BodyWriter writer;
  writer.number(ahead.first).number(ahead.count);
  for (const auto& ids : ahead.ids) writer.numbers(std::span(ids));
  return writer.take();
}

StatusOr<LookAhead> decodeLookAhead(std::string_view body, std::size_t tables) {
  BodyReader reader(body);
  LookAhead ahead;
  ahead.first = reader.number<std::int64_t>();
  ahead.count = reader.number<std::int32_t>();
  for (std::size_t t = 0; t < tables; ++t) ahead.ids.push_back(reader.numbers<std::uint64_t>());
  if (!reader.whole() || ahead.first < 0 || ahead.count < 1) return damaged(Kind::kLookAhead);
  return ahead;
}

}  // namespace trainyard::runtime::session
