// A parser that believes a valid header: it reads as many samples as that announces, whatever the
// payload has. It shows that the fuzzer, the sanitizer and `make fuzz` see such a thing.
#include <cstring>
#include <vector>

#include "base/core/check.h"
#include "runtime/lanes/frame.h"
#include "tests/fuzz/target.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::fuzz {

using runtime::lanes::FrameBytes;

void runPlanted(std::string_view input) {
  FrameBytes bytes{};
  if (input.size() < bytes.size()) return;
  std::memcpy(bytes.data(), input.data(), bytes.size());
  const auto head = runtime::lanes::decodeFrame(bytes);
  const std::string_view rest = input.substr(bytes.size());
  if (!head.ok() || rest.size() != head->header_bytes + head->body_bytes) return;
  v1::ChunkRequestHeader header;
  if (!header.ParseFromArray(rest.data(), static_cast<int>(head->header_bytes))) return;
  if (head->body_bytes == 0 || head->body_bytes % 4 != 0) return;
  std::vector<float> values(head->body_bytes / 4);
  std::memcpy(values.data(), rest.data() + head->header_bytes, head->body_bytes);
  const float* const all = values.data();
  volatile float sum = 0;
  for (std::uint32_t i = 0; i < header.samples(); ++i) sum = sum + all[i];
}

std::vector<std::string> plantedSeeds() {
  v1::ChunkRequestHeader header;
  header.set_protocol(1);
  header.set_samples(3);
  const std::string text = header.SerializeAsString();
  runtime::lanes::FrameHead head;
  head.header_bytes = static_cast<std::uint32_t>(text.size());
  head.body_bytes = 12;
  runtime::lanes::FrameSeal seal(std::string(32, 'k'), 0);
  const FrameBytes bytes = runtime::lanes::encodeFrame(head, text, seal);
  return {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + text +
          std::string(12, '\0')};
}

}  // namespace trainyard::fuzz
