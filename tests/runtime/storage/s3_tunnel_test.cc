#include <sys/socket.h>

#include <array>

#include "base/process/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/storage/s3/tunnel.h"

namespace trainyard::runtime::s3 {
namespace {

using testing::HasSubstr;

// A proxy that has answered before it was asked.
class TunnelTest : public testing::Test {
 protected:
  TunnelTest() {
    std::array<int, 2> ends;
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    ours_ = UniqueFd(ends[0]);
    its_ = UniqueFd(ends[1]);
  }
  void answer(const std::string& text) {
    EXPECT_EQ(::send(its_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  Status open(const ProxyAddress& proxy = {"proxy", 3128, "", ""},
              Duration limit = std::chrono::seconds(60)) {
    return openTunnel(ours_.get(), proxy, "store:443", systemClock().now() + limit);
  }
  static std::string read(const UniqueFd& end) {
    std::array<char, 4096> text;
    const ssize_t bytes = ::recv(end.get(), text.data(), text.size(), 0);
    return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
  }
  UniqueFd ours_, its_;
};

TEST_F(TunnelTest, TakesTheProxysAnswerAndNoMore) {
  answer("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nfrom the store");
  EXPECT_EQ(open(), absl::OkStatus());
  EXPECT_EQ(read(ours_), "from the store");
  EXPECT_EQ(read(its_), "CONNECT store:443 HTTP/1.1\r\nHost: store:443\r\n\r\n");
}

TEST_F(TunnelTest, SaysWhoAsks) {
  answer("HTTP/1.0 200 OK\r\n\r\n");
  EXPECT_EQ(open({"proxy", 3128, "ann", "p@ss"}), absl::OkStatus());
  EXPECT_THAT(read(its_), HasSubstr("\r\nProxy-Authorization: Basic YW5uOnBAc3M=\r\n"));
}

TEST_F(TunnelTest, ARefusalIsForGood) {
  for (const char* code : {"401", "403", "407"}) {
    answer(std::string("HTTP/1.1 ") + code + " No\r\nConnection: close\r\n\r\n");
    const Status opened = open();
    EXPECT_EQ(opened.code(), absl::StatusCode::kPermissionDenied) << code;
    EXPECT_THAT(std::string(opened.message()), HasSubstr("proxy:3128")) << code;
    EXPECT_THAT(std::string(opened.message()), HasSubstr(code)) << code;
  }
}

TEST_F(TunnelTest, OtherAnswersMayPass) {
  for (const char* head :
       {"HTTP/1.1 502 Bad gateway\r\n\r\n", "HTTP/1.1 302 Found\r\n\r\n", "no\r\n\r\n"}) {
    answer(head);
    EXPECT_EQ(open().code(), absl::StatusCode::kUnavailable) << head;
  }
  answer(std::string(20000, 'x'));
  EXPECT_EQ(open().code(), absl::StatusCode::kUnavailable) << "without an end";
}

TEST_F(TunnelTest, SoMayItsSilenceAndItsEnd) {
  EXPECT_EQ(open({"proxy", 3128, "", ""}, std::chrono::milliseconds(20)).code(),
            absl::StatusCode::kUnavailable);
  answer("HTTP/1.1 200");
  its_ = UniqueFd();
  EXPECT_EQ(open().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace trainyard::runtime::s3
