// The header of a message between ranks. After it a byte that says whether its checksum is put
// right: hardly any other input would have a right one.
#include <cstring>

#include "base/core/check.h"
#include "base/core/crc32c.h"
#include "runtime/transport/frame.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

using runtime::transport::Frame;
using runtime::transport::FrameBytes;

constexpr std::size_t kChecksumBytes = 4;

std::string seed(const Frame& frame, char repair) {
  const FrameBytes bytes = encodeFrame(frame);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + repair;
}

}  // namespace

void runFrame(std::string_view input) {
  FrameBytes bytes{};
  std::memcpy(bytes.data(), input.data(), std::min(input.size(), bytes.size()));
  if (input.size() > bytes.size() && (input[bytes.size()] & 1) != 0) {
    const auto checked = std::span(bytes).first(bytes.size() - kChecksumBytes);
    const std::uint32_t checksum = crc32c(checked);
    std::memcpy(bytes.data() + checked.size(), &checksum, sizeof checksum);
  }
  const auto frame = runtime::transport::decodeFrame(bytes);
  if (!frame.ok()) {
    TY_CHECK(absl::IsDataLoss(frame.status()), "a header that is wrong is lost data");
    return;
  }
  TY_CHECK(encodeFrame(*frame) == bytes, "every byte of a header counts");
}

std::vector<std::string> frameSeeds() {
  Frame frame;
  std::vector<std::string> seeds = {"", seed(frame, 0), seed(frame, 1)};
  frame.kind = runtime::transport::FrameKind::kWaiting;
  frame.epoch = 77;
  frame.id.part = 3;
  frame.bytes = 1 << 20;
  seeds.push_back(seed(frame, 1));
  for (const std::size_t at : {std::size_t{0}, std::size_t{4}, std::size_t{6}, std::size_t{36}}) {
    std::string wrong = seed(frame, 1);
    wrong[at] = '\x7f';
    seeds.push_back(wrong);
  }
  return seeds;
}

}  // namespace trainyard::fuzz
