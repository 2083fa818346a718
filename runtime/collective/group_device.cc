#include "runtime/collective/group_device.h"

#include <map>

#include "fmt/format.h"

namespace trainyard::runtime::collective {
namespace {

constexpr char kHas = '+';      // and the identity
constexpr char kHasNone = '-';  // and why

}  // namespace

std::string offerOf(const GroupDevice& device) {
  return device.library ? kHas + device.identity : kHasNone + device.missing;
}

DeviceVerdict decideOnDevices(std::span<const std::string> offers) {
  std::map<std::string_view, std::size_t> ranks;  // by identity
  DeviceVerdict none;
  bool on_device = false;
  for (std::size_t r = 0; r < offers.size(); ++r) {
    const bool has = offers[r].starts_with(kHas);
    const std::string_view said = std::string_view(offers[r]).substr(1);
    on_device |= has || !said.empty();
    if (!none.reason.empty()) continue;
    if (!has) {
      none.reason = fmt::format("rank {}: {}", r, said.empty() ? "computes on no GPU" : said);
      continue;
    }
    const auto [other, is_first] = ranks.try_emplace(said, r);
    if (!is_first)
      none.reason = fmt::format("ranks {} and {} have one GPU, {}", other->second, r, said);
  }
  if (none.reason.empty()) return {true, ""};
  return on_device ? none : DeviceVerdict{};
}

}  // namespace trainyard::runtime::collective
