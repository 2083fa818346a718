// Requests for rows, and what goes to replicas of parts, as bytes that travel (v1::TableBody).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/core/status.h"
#include "runtime/rows/row_part.h"
#include "runtime/tensor/element_type.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// The longest body of a request for rows that a server reads.
inline constexpr std::size_t kMaxRowBody = std::size_t{256} << 20;

struct RowBytes {
  std::shared_ptr<const std::byte[]> memory;
  std::size_t size = 0;
  std::span<const std::byte> span() const { return {memory.get(), size}; }
};
// Fills header.tables.
RowBytes rowBody(const rows::RowRequest& request, ElementType wire, v1::ChunkRequestHeader& header);

// The reverse, of tables of these dims; epoch, rank, step and version are the header's. Gradients
// are there where the header has samples. INVALID_ARGUMENT: the body is not as long as the header
// says, or of other tables.
StatusOr<rows::RowRequest> rowRequestOf(const v1::ChunkRequestHeader& header,
                                        std::span<const std::byte> body,
                                        std::span<const std::size_t> dims, ElementType wire);

// Fills in what a replica is told of an update, but for the job, the epoch and the part.
void describeUpdate(const rows::PartUpdate& update, v1::ChunkRequestHeader& header);
// Its body; completes the header. Numbers are not rounded.
RowBytes updateBody(const rows::PartUpdate& update, v1::ChunkRequestHeader& header);
// The reverse. INVALID_ARGUMENT: the body is not what the header says, of tables of these dims.
StatusOr<rows::PartUpdate> updateOf(const v1::ChunkRequestHeader& header,
                                    std::span<const std::byte> body,
                                    std::span<const std::size_t> dims);

}  // namespace trainyard::runtime::ps
