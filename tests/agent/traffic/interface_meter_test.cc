#include "agent/traffic/interface_meter.h"

#include <string>

#include "agent/traffic/wire_meter.h"
#include "base/process/files.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::agent {
namespace {

constexpr char kHeadings[] =
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop "
    "fifo colls carrier compressed\n"
    "    lo:  777777     99    0    0    0     0          0         0   777777      99    0    0   "
    " "
    "0     0       0          0\n";

std::string line(const std::string& name, int received, int transmitted) {
  return fmt::format("{:>6}: {:>8} 12 0 1 0 0 0 0 {:>8} 34 0 0 0 0 0 0\n", name, received,
                     transmitted);
}

TEST(OnlyInterface, IsTheOneBesideTheLoopback) {
  const auto bytes = bytesOfOnlyInterface(kHeadings + line("eth0", 5000, 300));
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(bytes->received, 5000u);
  EXPECT_EQ(bytes->transmitted, 300u);
}

TEST(OnlyInterface, OfAMachineThereAreSeveralAndOfLoopbackAloneNone) {
  EXPECT_FALSE(
      bytesOfOnlyInterface(kHeadings + line("eth0", 5, 3) + line("cni0", 5, 3)).has_value());
  EXPECT_FALSE(bytesOfOnlyInterface(kHeadings).has_value());
  EXPECT_FALSE(bytesOfOnlyInterface("eth0: 5 3\n").has_value());
  EXPECT_FALSE(bytesOfOnlyInterface("").has_value());
}

TEST(InterfaceMeter, TellsAMetersReaderWhatTheKernelDoesNotTellOfConnections) {
  const TempDir folder;
  const auto file = folder.path() / "dev";
  const auto write = [&](int received, int transmitted) {
    const std::string text = kHeadings + line("eth0", received, transmitted);
    ASSERT_TRUE(writeFileAtomically(file, text).ok());
  };
  write(1000, 100);
  WireMeter meter(2222, std::nullopt, absl::UnavailableError("no sock_diag here"));
  EXPECT_FALSE(meter.read().has_value());
  meter.fallBackTo(InterfaceMeter(folder.path() / "none"));
  EXPECT_FALSE(meter.read().has_value());
  meter.fallBackTo(InterfaceMeter(file));
  write(4500, 120);
  const auto reading = meter.read();
  ASSERT_TRUE(reading.has_value());
  EXPECT_EQ(reading->total.received, 3500u);
  EXPECT_EQ(reading->total.transmitted, 20u);
  EXPECT_TRUE(reading->peers.empty());
}

}  // namespace
}  // namespace trainyard::agent
