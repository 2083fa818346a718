// The greeting of a lane: both ends as they are, on a loop, and somebody between them. The input
// says who they are and what becomes of each of the four messages. Whatever it is: nobody is taken
// who does not know the key, or over whose preamble, Hello, Challenge or Intro somebody else had a
// say.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <future>
#include <memory>

#include "base/core/check.h"
#include "base/process/poll.h"
#include "fmt/format.h"
#include "runtime/lanes/greeting.h"
#include "tests/fuzz/lane_feed.h"
#include "tests/fuzz/meddler.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

using runtime::lanes::Greeted;
using runtime::lanes::Greeting;
using runtime::lanes::Intro;
using runtime::lanes::LaneSecrets;

// The four messages, the first with the preamble.
constexpr std::size_t kHelloBytes = 8 + 40;
constexpr std::size_t kChallengeBytes = 72;
constexpr std::size_t kIntroBytes = 36;
constexpr std::size_t kProvedIntroBytes = 32 + kIntroBytes;
constexpr std::size_t kVerdictBytes = 172;
constexpr std::uint64_t kLanes = 3;
// Against hangs only.
constexpr Duration kLimit = std::chrono::seconds(15);

// Where callers come, one at a time.
class Door {
 public:
  Door() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    socklen_t size = sizeof at;
    TY_CHECK(::bind(listener_.get(), address, size) == 0 && ::listen(listener_.get(), 16) == 0 &&
                 ::getsockname(listener_.get(), address, &size) == 0,
             "this machine has a loopback");
    address_ = fmt::format("127.0.0.1:{}", ntohs(at.sin_port));
  }
  const std::string& address() const { return address_; }
  UniqueFd next() const {
    UniqueFd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    TY_CHECK(caller.valid(), "the caller has come");
    // Its port is free again at once.
    const linger none{1, 0};
    ::setsockopt(caller.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
    return caller;
  }

 private:
  const UniqueFd listener_;
  std::string address_;
};

// One side's greeting, made and destroyed on the loop.
class Side {
 public:
  using Make = std::function<std::unique_ptr<Greeting>(Greeting::Done)>;
  explicit Side(const Make& make) {
    onLaneLoop([&] {
      greeting_ = make([this](StatusOr<Greeted> result) {
        // Its connection ends with it, and it must not within its own call.
        auto shared = std::make_shared<StatusOr<Greeted>>(std::move(result));
        laneLoop().post([this, shared, told = result_] {
          greeting_.reset();
          told->set_value(std::move(*shared));
        });
      });
    });
  }
  StatusOr<Greeted> result() {
    auto future = result_->get_future();
    TY_CHECK(future.wait_for(kLimit) == std::future_status::ready, "a greeting comes to an end");
    return future.get();
  }

 private:
  std::unique_ptr<Greeting> greeting_;
  // Whoever sets it may still be at it when this is gone.
  const std::shared_ptr<std::promise<StatusOr<Greeted>>> result_ =
      std::make_shared<std::promise<StatusOr<Greeted>>>();
};

// What comes until there are so many bytes, or the other side ends.
std::string hear(int fd, std::size_t bytes) {
  std::string heard(bytes, '\0');
  std::size_t got = 0;
  while (got < bytes) {
    TY_CHECK(waitReadable(fd, systemClock().now() + kLimit), "each side says something or ends");
    const ssize_t n = ::recv(fd, heard.data() + got, bytes - got, 0);
    if (n <= 0) break;
    got += static_cast<std::size_t>(n);
  }
  heard.resize(got);
  return heard;
}

// The middle: what one side says arrives at the other as the input has it.
class Middle {
 public:
  explicit Middle(Choices& choices) : choices_(choices) {}

  // False: not all of it did, and no more will.
  bool pass(int from, int to, std::size_t bytes) {
    const std::string said = hear(from, bytes);
    const std::string arriving = meddledWith(said, choices_);
    meddled_ = meddled_ || arriving != said;
    const ssize_t sent = ::send(to, arriving.data(), arriving.size(), MSG_NOSIGNAL);
    return arriving.size() == bytes && sent == static_cast<ssize_t>(bytes);
  }
  bool meddled() const { return meddled_; }

 private:
  Choices& choices_;
  bool meddled_ = false;
};

class Encounter {
 public:
  explicit Encounter(Choices& choices) : choices_(choices), who_(choices.byte()) {
    std::string intro(kIntroBytes, '\0');
    const std::string_view given = choices.take(kIntroBytes);
    intro.replace(0, given.size(), given);
    intro_ = runtime::lanes::decodeIntro(intro);
    TY_CHECK(runtime::lanes::encodeIntro(intro_) == intro, "all of an Intro counts");
  }

  void run() {
    static const Door door;
    int ends[2];
    TY_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "two sockets");
    UniqueFd to_server(ends[0]);
    UniqueFd served(ends[1]);
    Side server([&](Greeting::Done done) {
      return runtime::lanes::answerCaller(
          laneLoop(), std::move(served), LaneSecrets{"the key"}, kLanes,
          [this](const Intro& who) { return judge(who); }, std::move(done));
    });
    Side caller([&](Greeting::Done done) {
      const LaneSecrets secrets{stranger() ? "another key" : "the key"};
      return runtime::lanes::callServer(laneLoop(), door.address(), secrets, intro_,
                                        std::move(done));
    });
    UniqueFd to_caller = door.next();
    Middle middle(choices_);
    const bool proved = middle.pass(to_caller.get(), to_server.get(), kHelloBytes) &&
                        middle.pass(to_server.get(), to_caller.get(), kChallengeBytes) &&
                        middle.pass(to_caller.get(), to_server.get(), kProvedIntroBytes);
    honest_ = proved && !middle.meddled() && !stranger();
    if (proved) middle.pass(to_server.get(), to_caller.get(), kVerdictBytes);
    to_server.reset();
    to_caller.reset();
    StatusOr<Greeted> served_as = server.result();
    StatusOr<Greeted> called_as = caller.result();
    check(served_as.status(), called_as.status(), middle.meddled());
    if (served_as.ok() && called_as.ok()) checkBoth(*served_as, *called_as, middle.meddled());
  }

 private:
  bool stranger() const { return (who_ & 1) != 0; }
  bool unwelcome() const { return (who_ & 2) != 0; }
  std::string judge(const Intro& intro) const {
    TY_CHECK(runtime::lanes::encodeIntro(intro) == runtime::lanes::encodeIntro(intro_),
             "an Intro arrives as it was, or not");
    return unwelcome() ? "another one is meant" : "";
  }

  void check(const Status& server, const Status& caller, bool meddled) const {
    const bool welcome = !unwelcome() && intro_.lane < kLanes;
    TY_CHECK(server.ok() == (honest_ && welcome), "who proves himself is taken, nobody else");
    TY_CHECK(!caller.ok() || honest_, "and takes nobody else for the server");
    TY_CHECK(meddled || caller.ok() == server.ok(), "both know it");
    for (const Status& status : {server, caller}) {
      TY_CHECK(honest_ || !absl::IsFailedPrecondition(status), "only who is proved refuses");
      TY_CHECK(status.ok() || absl::IsDataLoss(status) || absl::IsPermissionDenied(status) ||
                   absl::IsUnimplemented(status) || absl::IsUnavailable(status) ||
                   absl::IsFailedPrecondition(status),
               "the others are strangers, or gone");
    }
  }
  static void checkBoth(Greeted& server, Greeted& caller, bool meddled) {
    TY_CHECK(meddled || caller.lanes == kLanes, "a caller hears how many lanes there are");
    const runtime::lanes::FrameHead head;
    const auto request = encodeFrame(head, "", caller.seals.out);
    const auto reply = encodeFrame(head, "", server.seals.out);
    TY_CHECK(request != reply, "no direction's seal is good in the other");
    TY_CHECK(
        checkSeal(request, "", server.seals.in).ok() && checkSeal(reply, "", caller.seals.in).ok(),
        "each knows the other's seals");
  }

  Choices& choices_;
  const std::uint8_t who_;
  Intro intro_;
  bool honest_ = false;
};

}  // namespace

void runGreeting(std::string_view input) {
  Choices choices(input);
  Encounter(choices).run();
}

std::vector<std::string> greetingSeeds() {
  std::vector<std::string> seeds = {""};
  Intro intro;
  intro.from.role = v1::ROLE_WORKER;
  intro.from.index = 4;
  intro.to.incarnation.set_created(1);
  intro.to.incarnation.set_start(2);
  intro.lane = kLanes - 1;
  const std::string right = runtime::lanes::encodeIntro(intro);
  intro.lane = kLanes;
  const std::string beyond = runtime::lanes::encodeIntro(intro);
  for (const char who : {'\0', '\1', '\2'}) {
    seeds.push_back(who + right);
    for (std::size_t at = 0; at < 4; ++at) {
      for (const std::string& fate : {std::string{static_cast<char>(kChanged), '\x0e', '\3'},
                                      std::string{static_cast<char>(kChanged), '\0', '\0'},
                                      std::string{static_cast<char>(kCutShort), '\5'}}) {
        seeds.push_back(who + right + std::string(at, static_cast<char>(kPassed)) + fate);
      }
    }
  }
  seeds.push_back('\0' + beyond);
  const std::string replaced = '\0' + right + static_cast<char>(kReplaced);
  seeds.push_back(replaced + "TYLANETS");
  seeds.push_back(replaced + "GET / HTTP/1.1\r\n");
  return seeds;
}

}  // namespace trainyard::fuzz
