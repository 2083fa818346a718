#include "runtime/ps/part_body.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "runtime/ps/array_reader.h"
#include "runtime/ps/row_body.h"

namespace trainyard::runtime::ps {
namespace {

// What the header's tables bring, in bytes. Sizes are others' word: the caller compares.
std::uint64_t bytesOf(const v1::ChunkRequestHeader& header, std::span<const std::size_t> dims) {
  std::uint64_t bytes = 0;
  for (std::size_t t = 0; t < dims.size() && static_cast<int>(t) < header.tables_size(); ++t)
    bytes += std::uint64_t{header.tables(static_cast<int>(t)).brought()} * (12 + 4 * dims[t]);
  return bytes;
}

// All that a frame refers to.
struct Kept {
  rows::GivenPart part;
  std::string record;
  std::vector<RowBytes> pushes;
};

void addPush(const rows::PartUpdate& update, v1::PartPush& push, Kept& kept) {
  describeUpdate(update, *push.mutable_header());
  for (const rows::RowGradients& gradients : update.gradients) {
    const std::size_t ids = gradients.ids.size();
    push.add_dims(static_cast<std::uint32_t>(ids == 0 ? 0 : gradients.sums.size() / ids));
  }
  kept.pushes.push_back(updateBody(update, *push.mutable_header()));
}

v1::PartRecord recordOf(Kept& kept) {
  const rows::GivenPart& part = kept.part;
  v1::PartRecord record;
  record.set_point(part.point);
  record.set_version(part.version);
  for (const TableRows& rows : part.stores) {
    v1::PartStore* store = record.add_stores();
    const std::size_t ids = rows.ids.size();
    store->set_dim(static_cast<std::uint32_t>(ids == 0 ? 0 : rows.weights.size() / ids));
    store->set_slots(static_cast<std::uint32_t>(rows.slots.size()));
    store->set_first(rows.first);
    store->mutable_sizes()->Add(rows.sizes.begin(), rows.sizes.end());
    store->set_gone(rows.gone.size());
  }
  if (part.update != nullptr) addPush(*part.update, *record.mutable_update(), kept);
  for (const rows::GivenPart::Applied& push : part.applied) {
    v1::AppliedPush* applied = record.add_applied();
    applied->set_worker(push.worker);
    applied->mutable_incarnation()->set_created(static_cast<std::uint32_t>(push.created));
    applied->mutable_incarnation()->set_start(static_cast<std::uint32_t>(push.start));
    applied->set_push(push.number);
  }
  part.tickets.write(*record.mutable_pushed_tickets());
  part.samples.write(*record.mutable_pushed_samples());
  for (const std::vector<rows::RowGradients>& gradients : part.brought) {
    rows::PartUpdate push;
    push.push.samples = 1;  // says that there are gradients
    push.gradients = gradients;
    addPush(push, *record.add_brought(), kept);
  }
  record.set_brought_samples(part.brought_samples);
  record.set_mark(part.mark);
  for (const auto& update : part.updates) addPush(*update, *record.add_updates(), kept);
  return record;
}

constexpr std::uint64_t kMostRows = std::uint64_t{1} << 40;  // of a part; no sum of bytes overflows
constexpr std::uint32_t kMostDim = 1U << 16;
constexpr std::uint64_t kMostRecord = std::uint64_t{1} << 30;

bool readStore(const v1::PartStore& store, ArrayReader& reader, TableRows& rows) {
  std::uint64_t count = 0;
  for (const std::int64_t size : store.sizes()) {
    if (size < 0 || static_cast<std::uint64_t>(size) > kMostRows - count) return false;
    count += static_cast<std::uint64_t>(size);
    rows.sizes.push_back(size);
  }
  if (store.dim() > kMostDim || store.slots() > 4) return false;
  rows.first = store.first();
  rows.slots.resize(store.slots());
  if (!reader.array(count, rows.ids) || !reader.array(count, rows.steps) ||
      !reader.array(count, rows.counts) || !reader.array(count * store.dim(), rows.weights))
    return false;
  for (std::vector<float>& slot : rows.slots) {
    if (!reader.array(count * store.dim(), slot)) return false;
  }
  return reader.array(store.gone(), rows.gone) && reader.array(store.gone(), rows.gone_steps);
}

Status readPush(const v1::PartPush& push, std::span<const std::size_t> dims, ArrayReader& reader,
                rows::PartUpdate& update) {
  std::span<const std::byte> body;
  if (!reader.bytes(bytesOf(push.header(), dims), 1, body))
    return absl::DataLossError("a part's body is shorter than its record says");
  auto read = updateOf(push.header(), body, dims);
  if (!read.ok()) return absl::DataLossError(read.status().message());
  update = *std::move(read);
  return absl::OkStatus();
}

// Of the tables that bring gradients: what they were sent with.
std::vector<std::size_t> dimsOf(const v1::PartPush& push) {
  return {push.dims().begin(), push.dims().end()};
}

}  // namespace

ChunkFrame frameOf(rows::GivenPart part) {
  const auto kept = std::make_shared<Kept>();
  kept->part = std::move(part);
  kept->record = recordOf(*kept).SerializeAsString();
  v1::FetchChunkReply reply;
  reply.set_part(true);
  reply.set_version(kept->part.version);
  reply.set_record_bytes(static_cast<std::uint32_t>(kept->record.size()));
  ChunkFrame frame;
  frame.header = reply.SerializeAsString();
  const auto add = [&](auto span) {
    if (!span.empty()) frame.body.push_back({std::as_bytes(span), kept});
  };
  add(std::span(kept->record));
  for (const TableRows& rows : kept->part.stores) {
    add(std::span(rows.ids));
    add(std::span(rows.steps));
    add(std::span(rows.counts));
    add(std::span(rows.weights));
    for (const std::vector<float>& slot : rows.slots) add(std::span(slot));
    add(std::span(rows.gone));
    add(std::span(rows.gone_steps));
  }
  for (const RowBytes& push : kept->pushes) add(push.span());
  return frame;
}

StatusOr<ArrivingPart> ArrivingPart::make(std::string_view header, std::uint64_t body_bytes) {
  v1::FetchChunkReply reply;
  if (!reply.ParseFromArray(header.data(), static_cast<int>(header.size())) || !reply.part())
    return absl::DataLossError("a part's head that cannot be read");
  if (reply.record_bytes() > std::min<std::uint64_t>(body_bytes, kMostRecord)) {
    return absl::DataLossError(
        fmt::format("{} bytes of a part, {} of its record", body_bytes, reply.record_bytes()));
  }
  ArrivingPart arriving;
  arriving.record_bytes_ = reply.record_bytes();
  arriving.body_.resize(body_bytes);
  return arriving;
}

std::vector<std::span<std::byte>> ArrivingPart::body() {
  return {std::span(body_)};
}

StatusOr<rows::GivenPart> ArrivingPart::take() && {
  const auto wrong = [] {
    return absl::DataLossError("a part's body is not what its record says");
  };
  v1::PartRecord record;
  if (!record.ParseFromArray(body_.data(), static_cast<int>(record_bytes_)))
    return absl::DataLossError("a part's record that cannot be read");
  rows::GivenPart part;
  part.point = record.point();
  part.version = record.version();
  ArrayReader reader(std::span<const std::byte>(body_).subspan(record_bytes_));
  for (const v1::PartStore& store : record.stores()) {
    TableRows& rows = part.stores.emplace_back();
    rows.table = part.stores.size() - 1;
    if (!readStore(store, reader, rows)) return wrong();
  }
  if (record.has_update()) {
    rows::PartUpdate update;
    TY_RETURN_IF_ERROR(readPush(record.update(), dimsOf(record.update()), reader, update));
    part.update = std::make_shared<const rows::PartUpdate>(std::move(update));
  }
  for (const v1::AppliedPush& push : record.applied()) {
    part.applied.push_back(
        {push.worker(), push.incarnation().created(), push.incarnation().start(), push.push()});
  }
  part.tickets = NumberSet(record.pushed_tickets());
  part.samples = NumberSet(record.pushed_samples());
  for (const v1::PartPush& push : record.brought()) {
    rows::PartUpdate brought;
    TY_RETURN_IF_ERROR(readPush(push, dimsOf(push), reader, brought));
    part.brought.push_back(std::move(brought.gradients));
  }
  part.brought_samples = record.brought_samples();
  part.mark = record.mark();
  for (const v1::PartPush& push : record.updates()) {
    rows::PartUpdate update;
    TY_RETURN_IF_ERROR(readPush(push, dimsOf(push), reader, update));
    part.updates.push_back(std::make_shared<const rows::PartUpdate>(std::move(update)));
  }
  if (!reader.atEnd()) return wrong();
  return part;
}

}  // namespace trainyard::runtime::ps
