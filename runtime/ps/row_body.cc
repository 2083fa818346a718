#include "runtime/ps/row_body.h"

#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "runtime/tensor/reduce.h"

namespace trainyard::runtime::ps {
namespace {

constexpr std::size_t kIdBytes = sizeof(std::uint64_t);
constexpr std::size_t kCountBytes = sizeof(std::uint32_t);

class Writer {
 public:
  Writer(std::byte* to, ElementType wire) : to_(to), wire_(wire) {}
  template <typename T>
  void array(const std::vector<T>& values) {
    if (!values.empty()) std::memcpy(to_, values.data(), values.size() * sizeof(T));
    to_ += values.size() * sizeof(T);
  }
  void floats(const std::vector<float>& values) {
    if (wire_ == ElementType::kFloat32) return array(values);
    const auto* wide = reinterpret_cast<const std::byte*>(values.data());
    narrowFloats(wire_, to_, wide, static_cast<std::int64_t>(values.size()));
    to_ += values.size() * sizeOf(wire_);
  }

 private:
  std::byte* to_;
  const ElementType wire_;
};

class Reader {
 public:
  Reader(std::span<const std::byte> body, ElementType wire) : rest_(body), wire_(wire) {}
  // False: the body ends before. Nothing is made of a number that only the header claims.
  template <typename T>
  bool array(std::size_t count, std::vector<T>& values) {
    if (rest_.size() / sizeof(T) < count) return false;
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), rest_.data(), count * sizeof(T));
    rest_ = rest_.subspan(count * sizeof(T));
    return true;
  }
  bool floats(std::size_t count, std::vector<float>& values) {
    if (wire_ == ElementType::kFloat32) return array(count, values);
    const std::size_t size = sizeOf(wire_);
    if (rest_.size() / size < count) return false;
    values.resize(count);
    widenFloats(wire_, reinterpret_cast<std::byte*>(values.data()), rest_.data(),
                static_cast<std::int64_t>(count));
    rest_ = rest_.subspan(count * size);
    return true;
  }
  bool atEnd() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  const ElementType wire_;
};

std::size_t bytesOfTable(const rows::RowRequest& request, std::size_t t, ElementType wire) {
  std::size_t bytes = request.ids[t].size() * kIdBytes;
  if (!request.gradients) return bytes;
  const rows::RowGradients& gradients = (*request.gradients)[t];
  bytes += gradients.ids.size() * (kIdBytes + kCountBytes);
  return bytes + gradients.sums.size() * sizeOf(wire);
}

// False: the body ends in the middle.
bool readTable(const v1::TableBody& has, std::size_t dim, Reader& reader, rows::RowRequest& request,
               std::size_t t) {
  if (!reader.array(has.wanted(), request.ids[t])) return false;
  if (!request.gradients) return has.brought() == 0;
  rows::RowGradients& gradients = (*request.gradients)[t];
  return reader.array(has.brought(), gradients.ids) &&
         reader.array(has.brought(), gradients.counts) &&
         reader.floats(std::size_t{has.brought()} * dim, gradients.sums);
}

}  // namespace

RowBytes rowBody(const rows::RowRequest& request, ElementType wire,
                 v1::ChunkRequestHeader& header) {
  header.clear_tables();
  std::size_t bytes = 0;
  for (std::size_t t = 0; t < request.ids.size(); ++t) {
    bytes += bytesOfTable(request, t, wire);
    v1::TableBody* has = header.add_tables();
    has->set_wanted(static_cast<std::uint32_t>(request.ids[t].size()));
    if (request.gradients)
      has->set_brought(static_cast<std::uint32_t>((*request.gradients)[t].ids.size()));
  }
  if (bytes == 0) return {};
  auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  Writer writer(memory.get(), wire);
  for (std::size_t t = 0; t < request.ids.size(); ++t) {
    writer.array(request.ids[t]);
    if (!request.gradients) continue;
    const rows::RowGradients& gradients = (*request.gradients)[t];
    writer.array(gradients.ids);
    writer.array(gradients.counts);
    writer.floats(gradients.sums);
  }
  return {std::move(memory), bytes};
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
  Reader reader(body, wire);
  for (std::size_t t = 0; t < dims.size(); ++t) {
    if (!readTable(header.tables(static_cast<int>(t)), dims[t], reader, request, t))
      return absl::InvalidArgumentError("rows: the body is shorter than the header says");
  }
  if (!reader.atEnd())
    return absl::InvalidArgumentError("rows: the body is longer than the header says");
  return request;
}

namespace {

// As rowBody() takes what travels.
rows::RowRequest requestOf(const rows::PartUpdate& update) {
  rows::RowRequest request;
  request.step = update.step;
  request.push = update.push;
  request.gradients = update.gradients;
  request.ids.resize(update.gradients.size());
  return request;
}

}  // namespace

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
  return rowBody(requestOf(update), ElementType::kFloat32, header);
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
