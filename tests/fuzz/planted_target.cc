// A parser that believes a valid header: it reads as many samples as that announces, whatever the
// payload has. It shows that the fuzzer, the sanitizer and `make fuzz` see such a thing.
#include <vector>

#include "base/core/check.h"
#include "runtime/ps/wire.h"
#include "tests/fuzz/target.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::fuzz {

void runPlanted(std::string_view input) {
  const grpc::Slice slice(input.data(), input.size());
  v1::ChunkRequestHeader header;
  const auto payload = runtime::ps::decodeChunk(grpc::ByteBuffer(&slice, 1), &header);
  if (!payload.ok()) return;
  if ((*payload)->sizeBytes() == 0 || (*payload)->sizeBytes() % 4 != 0) return;
  std::vector<float> values((*payload)->sizeBytes() / 4);
  (*payload)->copyTo(std::span<float>(values));
  const float* const all = values.data();
  volatile float sum = 0;
  for (std::uint32_t i = 0; i < header.samples(); ++i) sum = sum + all[i];
}

std::vector<std::string> plantedSeeds() {
  v1::ChunkRequest request;
  request.mutable_header()->set_protocol(1);
  request.mutable_header()->set_samples(3);
  request.set_payload(std::string(12, '\0'));
  return {request.SerializeAsString()};
}

}  // namespace trainyard::fuzz
