// What becomes of a connection whose agent takes long to speak.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

#include "base/process/unique_fd.h"
#include "tests/operator/progress/fake_agents.h"

namespace trainyard::control {
namespace {

// Takes connections, and says nothing until it is told to.
class LateAgent {
 public:
  LateAgent() : listening_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listening_.get(), 1), 0);
    ::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
  }
  AgentEndpoint endpoint() const { return {kPs0, 1, fmt::format("127.0.0.1:{}", port_)}; }
  void accept() { taken_ = UniqueFd(::accept(listening_.get(), nullptr, nullptr)); }
  // The frame that a server begins with (SETTINGS without any, RFC 9113, section 6.5).
  void begin() const {
    constexpr std::array<char, 9> kSettings{0, 0, 0, 4};
    EXPECT_EQ(::send(taken_.get(), kSettings.data(), kSettings.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(kSettings.size()));
  }
  // Whether the other side closes within so many seconds.
  bool isLeft(int seconds) const {
    const TimePoint end = systemClock().now() + std::chrono::seconds(seconds);
    std::array<char, 4096> bytes;
    while (systemClock().now() < end) {
      pollfd readable{.fd = taken_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&readable, 1, 100) > 0 && ::recv(taken_.get(), bytes.data(), bytes.size(), 0) <= 0)
        return true;
    }
    return false;
  }

 private:
  const UniqueFd listening_;
  UniqueFd taken_;
  int port_ = 0;
};

// Longer than an attempt lasts by itself, shorter than anything would end what is left open.
constexpr int kLimit = 15;

class ConnectingTest : public testing::Test {
 protected:
  ConnectingTest() {
    directory_.set({agent_.endpoint()});
    progress_.follow(kJob, "uid", {});
    EXPECT_TRUE(progress_.pollOnce(kJob).ok());  // which is over before anything is said
    agent_.accept();
    progress_.start();
  }
  LateAgent agent_;
  FakeDirectory directory_;
  GrpcProgress progress_{
      directory_, {.interval = std::chrono::hours(1), .timeout = std::chrono::milliseconds(1500)}};
};

TEST_F(ConnectingTest, OfAJobThatIsForgottenNoneStaysOpen) {
  progress_.forget(kJob);
  agent_.begin();
  EXPECT_TRUE(agent_.isLeft(kLimit));
}

TEST_F(ConnectingTest, OfATaskThatIsGoneNoneStaysOpen) {
  directory_.set({});
  EXPECT_TRUE(progress_.pollOnce(kJob).ok());
  agent_.begin();
  EXPECT_TRUE(agent_.isLeft(kLimit));
}

}  // namespace
}  // namespace trainyard::control
