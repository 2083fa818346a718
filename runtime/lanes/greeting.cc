#include "runtime/lanes/greeting.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "fmt/format.h"
#include "runtime/transport/fixed_bytes.h"

namespace trainyard::runtime::lanes {
namespace {

using transport::getAt;
using transport::putAt;
using transport::Verdict;

constexpr std::string_view kPlain = "TYLANE--";
constexpr std::string_view kEncrypted = "TYLANETS";
constexpr std::size_t kEnd = 4 * 4;
constexpr std::size_t kIntro = 2 * kEnd + 4;
// Of what was sent and not confirmed. A server that is busy for long is no lost one: whose process
// has gone the coordinator finds out.
constexpr int kUnconfirmedMs = 60'000;
// A host that is gone without a word, found out where nothing is sent.
constexpr int kSilentSeconds = 30;
constexpr int kProbeSeconds = 10;

void putEnd(std::string& bytes, std::size_t at, const End& end) {
  putAt(bytes, at, static_cast<std::uint32_t>(end.role));
  putAt(bytes, at + 4, end.index);
  putAt(bytes, at + 8, end.incarnation.created());
  putAt(bytes, at + 12, end.incarnation.start());
}

End getEnd(const std::string& bytes, std::size_t at) {
  End end;
  end.role = static_cast<v1::Role>(getAt<std::uint32_t>(bytes, at));
  end.index = getAt<std::uint32_t>(bytes, at + 4);
  end.incarnation.set_created(getAt<std::uint32_t>(bytes, at + 8));
  end.incarnation.set_start(getAt<std::uint32_t>(bytes, at + 12));
  return end;
}

void setOptions(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kSilentSeconds, sizeof kSilentSeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kProbeSeconds, sizeof kProbeSeconds);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnconfirmedMs, sizeof kUnconfirmedMs);
}

// A socket that is being connected.
StatusOr<UniqueFd> beginConnect(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos)
    return absl::InvalidArgumentError(fmt::format("'{}' is no address", address));
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0)
    return absl::InvalidArgumentError(fmt::format("'{}' is no numeric address", address));
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool begun = fd.valid() && (::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 ||
                                    errno == EINPROGRESS);
  const int error = errno;
  ::freeaddrinfo(found);
  if (!begun) return absl::UnavailableError(errnoStatus(error, address).message());
  setOptions(fd.get());
  return fd;
}

class Caller final : public Greeting {
 public:
  Caller(EventLoop& loop, std::string address, const LaneSecrets& secrets, const Intro& intro,
         Done done)
      : Greeting(loop, secrets, std::move(done)),
        address_(std::move(address)),
        intro_(intro),
        proof_(terms_, encodeIntro(intro)),
        preamble_(secrets.tls == nullptr ? kPlain : kEncrypted) {}

  void begin() {
    StatusOr<UniqueFd> socket = beginConnect(address_);
    if (!socket.ok()) return end(socket.status());
    socket_ = *std::move(socket);
    watch(socket_.get(), true);
  }

 private:
  StatusOr<bool> advance() override {
    if (stream_ == nullptr) return connectAndSay();
    TY_ASSIGN_OR_RETURN(const bool sent, sendAll(proof_.outgoing()));
    if (!sent) return false;
    TY_ASSIGN_OR_RETURN(const std::string got, receive(proof_.needs()));
    if (got.empty()) return false;
    TY_ASSIGN_OR_RETURN(const std::optional<Verdict> verdict, proof_.take(got));
    if (!verdict) return true;
    if (verdict->kind != Verdict::Kind::kTaken) {
      return absl::FailedPreconditionError(verdict->why);
    }
    const std::string key = proof_.connectionKey();
    end(Greeted{
        std::move(stream_), {FrameSeal(key, 1), FrameSeal(key, 0)}, intro_, verdict->number});
    return false;
  }
  // The first letters are not encrypted: they say that the rest is.
  StatusOr<bool> connectAndSay() {
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return absl::UnavailableError(errnoStatus(error, address_).message());
    const ssize_t n = ::send(socket_.get(), preamble_.data(), preamble_.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return false;
    if (n < 0) return absl::UnavailableError(errnoStatus(errno, address_).message());
    preamble_.remove_prefix(static_cast<std::size_t>(n));
    if (!preamble_.empty()) return false;
    const int fd = socket_.get();
    stream_ = stream::clientStream(secrets_.tls.get(), std::move(socket_));
    watch(fd, false);
    return true;
  }

  const std::string address_;
  const Intro intro_;
  transport::SenderProof proof_;
  std::string_view preamble_;
  UniqueFd socket_;
};

class Answerer final : public Greeting {
 public:
  Answerer(EventLoop& loop, UniqueFd socket, const LaneSecrets& secrets, std::uint64_t lanes,
           std::function<std::string(const Intro&)> judge, Done done)
      : Greeting(loop, secrets, std::move(done)),
        lanes_(lanes),
        judge_(std::move(judge)),
        proof_(terms_, kIntro),
        socket_(std::move(socket)) {}

  void begin() {
    setOptions(socket_.get());
    watch(socket_.get(), false);
  }

 private:
  StatusOr<bool> advance() override {
    if (stream_ == nullptr) return hearPreamble();
    TY_ASSIGN_OR_RETURN(const bool sent, sendAll(proof_.outgoing()));
    if (!sent) return false;
    if (verdict_) return conclude();
    TY_ASSIGN_OR_RETURN(const std::string got, receive(proof_.needs()));
    if (got.empty()) return false;
    StatusOr<std::optional<std::string>> intro = proof_.take(got);
    // Who speaks another version shall hear which one this is.
    if (!intro.ok()) (void)sendAll(proof_.outgoing());
    TY_RETURN_IF_ERROR(intro.status());
    if (!*intro) return true;
    intro_ = decodeIntro(**intro);
    verdict_ = Verdict{Verdict::Kind::kTaken, lanes_, judge_(intro_)};
    if (verdict_->why.empty() && intro_.lane >= lanes_)
      verdict_->why = fmt::format("lane {} of {}", intro_.lane, lanes_);
    if (!verdict_->why.empty()) verdict_->kind = Verdict::Kind::kRefused;
    proof_.answer(*verdict_);
    return true;
  }
  StatusOr<bool> hearPreamble() {
    char bytes[kPlain.size()];
    const ssize_t n = ::recv(socket_.get(), bytes, kPlain.size() - preamble_.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) return absl::UnavailableError("the connection was closed");
    preamble_.append(bytes, static_cast<std::size_t>(n));
    if (preamble_.size() < kPlain.size()) return true;
    if (preamble_ != (secrets_.tls == nullptr ? kPlain : kEncrypted)) {
      const bool lane = preamble_ == kPlain || preamble_ == kEncrypted;
      return absl::DataLossError(
          !lane                     ? "not a task of a Trainyard job"
          : secrets_.tls == nullptr ? "it encrypts, which this job does not (network.encryption)"
                                    : "it does not encrypt, as this job does (network.encryption)");
    }
    stream_ = stream::serverStream(secrets_.tls.get(), std::move(socket_));
    return true;
  }
  StatusOr<bool> conclude() {
    if (verdict_->kind != Verdict::Kind::kTaken)
      return absl::FailedPreconditionError(verdict_->why);
    const std::string key = proof_.connectionKey();
    end(Greeted{std::move(stream_), {FrameSeal(key, 0), FrameSeal(key, 1)}, intro_, lanes_});
    return false;
  }

  const std::uint64_t lanes_;
  const std::function<std::string(const Intro&)> judge_;
  transport::ReceiverProof proof_;
  UniqueFd socket_;
  std::string preamble_;
  Intro intro_;
  std::optional<Verdict> verdict_;
};

}  // namespace

std::string encodeIntro(const Intro& intro) {
  std::string bytes(kIntro, '\0');
  putEnd(bytes, 0, intro.from);
  putEnd(bytes, kEnd, intro.to);
  putAt(bytes, 2 * kEnd, intro.lane);
  return bytes;
}

Intro decodeIntro(const std::string& bytes) {
  return {getEnd(bytes, 0), getEnd(bytes, kEnd), getAt<std::uint32_t>(bytes, 2 * kEnd)};
}

Greeting::Greeting(EventLoop& loop, LaneSecrets secrets, Done done)
    : loop_(loop),
      secrets_(std::move(secrets)),
      terms_{"TYLANE", "trainyard lane", "a task of a Trainyard job", kLaneVersion, secrets_.key},
      done_(std::move(done)),
      limit_(systemClock().now() + kGreetingLimit) {}

Greeting::~Greeting() {
  if (watched_ >= 0) loop_.remove(watched_, *this);
}

void Greeting::watch(int fd, bool writable) {
  if (watched_ < 0) {
    loop_.add(fd, *this, writable);
  } else {
    loop_.change(fd, *this, writable);
  }
  watched_ = fd;
}

void Greeting::end(StatusOr<Greeted> result) {
  if (watched_ >= 0) loop_.remove(std::exchange(watched_, -1), *this);
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));
}

void Greeting::tick(TimePoint now) {
  if (!done() && now >= limit_) end(absl::DeadlineExceededError("no answer to a greeting"));
}

void Greeting::onReady() {
  while (!done()) {
    const StatusOr<bool> more = advance();
    if (!more.ok()) return end(more.status());
    if (!*more) break;
  }
  // What is to be said next may have to wait for the descriptor.
  if (!done() && stream_ != nullptr) watch(stream_->fd(), stream_->awaitsWritable());
}

StatusOr<bool> Greeting::sendAll(std::string& bytes) {
  while (!bytes.empty()) {
    const iovec part{bytes.data(), bytes.size()};
    TY_ASSIGN_OR_RETURN(const std::size_t sent, stream_->write({&part, 1}));
    if (sent == 0) return false;
    bytes.erase(0, sent);
  }
  return true;
}

StatusOr<std::string> Greeting::receive(std::size_t most) {
  std::string bytes(most, '\0');
  const iovec part{bytes.data(), bytes.size()};
  TY_ASSIGN_OR_RETURN(const std::size_t got, stream_->read({&part, 1}));
  bytes.resize(got);
  return bytes;
}

std::unique_ptr<Greeting> callServer(EventLoop& loop, const std::string& address,
                                     const LaneSecrets& secrets, const Intro& intro,
                                     Greeting::Done done) {
  auto caller = std::make_unique<Caller>(loop, address, secrets, intro, std::move(done));
  caller->begin();
  return caller;
}

std::unique_ptr<Greeting> answerCaller(EventLoop& loop, UniqueFd socket, const LaneSecrets& secrets,
                                       std::uint64_t lanes,
                                       std::function<std::string(const Intro&)> judge,
                                       Greeting::Done done) {
  auto answerer = std::make_unique<Answerer>(loop, std::move(socket), secrets, lanes,
                                             std::move(judge), std::move(done));
  answerer->begin();
  return answerer;
}

}  // namespace trainyard::runtime::lanes
