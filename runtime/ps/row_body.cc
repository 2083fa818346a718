#include "runtime/ps/row_body.h"

#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "runtime/ps/array_reader.h"
#include "runtime/tensor/reduce.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::size_t kIdBytes = sizeof(std::uint64_t);
constexpr std::size_t kCountBytes = sizeof(std::uint32_t);

class Writer {
 public:
  Writer(std::byte* to, ElementType wire) : to_(to), wire_(wire) {}
  template <typename T>
  void array(std::span<const T> values) {
    if (!values.empty()) std::memcpy(to_, values.data(), values.size_bytes());
    to_ += values.size_bytes();
  }
  void floats(const std::vector<float>& values) {
    if (wire_ == ElementType::kFloat32) return array(std::span<const float>(values));
    const auto* wide = reinterpret_cast<const std::byte*>(values.data());
    narrowFloats(wire_, to_, wide, static_cast<std::int64_t>(values.size()));
    to_ += values.size() * sizeOf(wire_);
  }

 private:
  std::byte* to_;
  const ElementType wire_;
};

// What travels of one table. Null: it brings nothing.
struct Wanted {
  std::span<const std::uint64_t> ids;
  const rows::RowGradients* brought = nullptr;
};

std::size_t bytesOf(const Wanted& table, ElementType wire) {
  std::size_t bytes = table.ids.size() * kIdBytes;
  if (table.brought == nullptr) return bytes;
  bytes += table.brought->ids.size() * (kIdBytes + kCountBytes);
  return bytes + table.brought->sums.size() * sizeOf(wire);
}

RowBytes bodyOf(const std::vector<Wanted>& tables, ElementType wire,
                v1::ChunkRequestHeader& header) {
  header.clear_tables();
  std::size_t bytes = 0;
  for (const Wanted& table : tables) {
    bytes += bytesOf(table, wire);
    v1::TableBody* has = header.add_tables();
    has->set_wanted(static_cast<std::uint32_t>(table.ids.size()));
    if (table.brought != nullptr)
      has->set_brought(static_cast<std::uint32_t>(table.brought->ids.size()));
  }
  if (bytes == 0) return {};
  auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  Writer writer(memory.get(), wire);
  for (const Wanted& table : tables) {
    writer.array(table.ids);
    if (table.brought == nullptr) continue;
    writer.array(std::span(table.brought->ids));
    writer.array(std::span(table.brought->counts));
    writer.floats(table.brought->sums);
  }
  return {std::move(memory), bytes};
}

// False: the body ends before. In memory they are 32 bits wide.
bool readFloats(std::size_t count, ElementType wire, ArrayReader& reader,
                std::vector<float>& values) {
  if (wire == ElementType::kFloat32) return reader.array(count, values);
  std::span<const std::byte> narrow;
  if (!reader.bytes(count, sizeOf(wire), narrow)) return false;
  values.resize(count);
  widenFloats(wire, reinterpret_cast<std::byte*>(values.data()), narrow.data(),
              static_cast<std::int64_t>(count));
  return true;
}

// False: the body ends in the middle.
bool readTable(const v1::TableBody& has, std::size_t dim, ElementType wire, ArrayReader& reader,
               rows::RowRequest& request, std::size_t t) {
  if (!reader.array(has.wanted(), request.ids[t])) return false;
  if (!request.gradients) return has.brought() == 0;
  rows::RowGradients& gradients = (*request.gradients)[t];
  return reader.array(has.brought(), gradients.ids) &&
         reader.array(has.brought(), gradients.counts) &&
         readFloats(std::size_t{has.brought()} * dim, wire, reader, gradients.sums);
}

}  // namespace

RowBytes rowBody(const rows::RowRequest& request, ElementType wire,
                 v1::ChunkRequestHeader& header) {
  std::vector<Wanted> tables;
  for (std::size_t t = 0; t < request.ids.size(); ++t)
    tables.push_back({request.ids[t], request.gradients ? &(*request.gradients)[t] : nullptr});
  return bodyOf(tables, wire, header);
}

StatusOr<rows::RowRequest> rowRequestOf(const v1::ChunkRequestHeader& header,
                                        std::span<const std::byte> body,
                                        std::span<const std::size_t> dims, ElementType wire) {
  if (static_cast<std::size_t>(header.tables_size()) != dims.size()) {
    return absl::InvalidArgumentError(fmt::format("the request is of {} tables, the job has {}",
                                                  header.tables_size(), dims.size()));
  }
  rows::RowRequest request;
  request.epoch = header.epoch();
  request.rank = static_cast<int>(header.rank());
  request.step = header.step();
  request.version = header.pull_only() ? header.version() : header.step() + 1;
  if (header.has_place()) request.place = static_cast<int>(header.place());
  request.push = {.worker = header.worker(),
                  .created = header.worker_incarnation().created(),
                  .start = header.worker_incarnation().start(),
                  .number = header.push(),
                  .ticket = header.ticket(),
                  .first = header.first(),
                  .samples = header.samples()};
  request.ids.resize(dims.size());
  if (!header.pull_only() && header.samples() > 0) request.gradients.emplace(dims.size());
  ArrayReader reader(body);
  for (std::size_t t = 0; t < dims.size(); ++t) {
    if (!readTable(header.tables(static_cast<int>(t)), dims[t], wire, reader, request, t))
      return absl::InvalidArgumentError("rows: the body is shorter than the header says");
  }
  if (!reader.atEnd())
    return absl::InvalidArgumentError("rows: the body is longer than the header says");
  return request;
}

void describeUpdate(const rows::PartUpdate& update, v1::ChunkRequestHeader& header) {
  const rows::RowRequest::Push& push = update.push;
  header.set_replica(true);
  header.set_before(update.point);
  header.set_step(update.step);
  header.set_samples(static_cast<std::uint32_t>(push.samples));
  header.set_worker(push.worker);
  header.mutable_worker_incarnation()->set_created(static_cast<std::uint32_t>(push.created));
  header.mutable_worker_incarnation()->set_start(static_cast<std::uint32_t>(push.start));
  header.set_push(push.number);
  header.set_ticket(push.ticket);
  header.set_first(push.first);
}

RowBytes updateBody(const rows::PartUpdate& update, v1::ChunkRequestHeader& header) {
  std::vector<Wanted> tables;
  for (const rows::RowGradients& gradients : update.gradients) tables.push_back({{}, &gradients});
  return bodyOf(tables, ElementType::kFloat32, header);
}

StatusOr<rows::PartUpdate> updateOf(const v1::ChunkRequestHeader& header,
                                    std::span<const std::byte> body,
                                    std::span<const std::size_t> dims) {
  TY_ASSIGN_OR_RETURN(rows::RowRequest request,
                      rowRequestOf(header, body, dims, ElementType::kFloat32));
  if (!request.gradients) return absl::InvalidArgumentError("an update that brings nothing");
  return rows::PartUpdate{header.before(), request.step, request.push,
                          *std::move(request.gradients)};
}

}  // namespace trainyard::runtime::ps
