// Both ends of a connection in one thread, and somebody between them who passes on and keeps what
// they send.
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/stream/tls_stream.h"

namespace trainyard::runtime::stream {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;
// Against hangs: how often both sides may be asked in vain.
constexpr int kPatience = 1000;

std::shared_ptr<const TlsContext> contextOf(
    const std::string& token, std::uint64_t records_per_key = TlsContext::kRecordsPerKey) {
  return *TlsContext::make(deriveRuntimeKeys(token).control, records_per_key);
}

std::pair<UniqueFd, UniqueFd> socketPair() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Recognised wherever it begins.
std::string textOf(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; text.size() < bytes; ++i) text += "word " + std::to_string(i) + ", ";
  text.resize(bytes);
  return text;
}

class Between {
 public:
  Between(const Encryption* caller, const Encryption* called) {
    auto [client_end, client_far] = socketPair();
    auto [server_far, server_end] = socketPair();
    client = clientStream(caller, std::move(client_end));
    server = serverStream(called, std::move(server_end));
    near_client_ = std::move(client_far);
    near_server_ = std::move(server_far);
  }
  void passOn() {
    pump(near_client_.get(), near_server_.get(), to_server_);
    pump(near_server_.get(), near_client_.get(), to_client_);
  }
  // All of `text` from one to the other; what came, or the first error.
  StatusOr<std::string> carry(Stream& from, Stream& to, const std::string& text) {
    std::string got;
    std::size_t sent = 0;
    for (int vain = 0; got.size() < text.size() && vain < kPatience; ++vain) {
      if (sent < text.size()) {
        // In parts of which the first is short, as a header is.
        const std::size_t first = std::min<std::size_t>(7, text.size() - sent);
        iovec parts[2] = {
            {const_cast<char*>(text.data()) + sent, first},
            {const_cast<char*>(text.data()) + sent + first, text.size() - sent - first}};
        const std::size_t count = parts[1].iov_len > 0 ? 2 : 1;
        TY_ASSIGN_OR_RETURN(const std::size_t n, from.write({parts, count}));
        sent += n;
        if (n > 0) vain = 0;
      }
      passOn();
      std::string some(text.size() - got.size(), '\0');
      const iovec part{some.data(), some.size()};
      TY_ASSIGN_OR_RETURN(const std::size_t n, to.read({&part, 1}));
      got += some.substr(0, n);
      if (n > 0) vain = 0;
    }
    return got;
  }
  bool carries(Stream& from, Stream& to, const std::string& text) {
    const StatusOr<std::string> got = carry(from, to, text);
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() && *got == text;
  }
  // To the server, as from the client.
  void forge(const std::string& bytes) {
    EXPECT_EQ(::send(near_server_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  std::string heard() const { return to_server_ + to_client_; }

  std::unique_ptr<Stream> client;
  std::unique_ptr<Stream> server;

 private:
  // What does not fit now goes with the next call.
  static void pump(int from, int to, std::string& heard) {
    char bytes[4096];
    for (;;) {
      const ssize_t n = ::recv(from, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
      if (n == 0) ::shutdown(to, SHUT_RDWR);
      if (n <= 0) return;
      const ssize_t passed =
          ::send(to, bytes, static_cast<std::size_t>(n), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (passed <= 0) return;
      heard.append(bytes, static_cast<std::size_t>(passed));
      (void)::recv(from, bytes, static_cast<std::size_t>(passed), MSG_DONTWAIT);
    }
  }

  UniqueFd near_client_, near_server_;
  std::string to_server_, to_client_;
};

class Streams : public testing::TestWithParam<bool> {
 protected:
  const std::shared_ptr<const Encryption> encryption_ = GetParam() ? contextOf("token") : nullptr;
};
INSTANTIATE_TEST_SUITE_P(, Streams, testing::Bool(),
                         [](const auto& each) { return each.param ? "Tls" : "Plain"; });

TEST_P(Streams, CarryBytesBothWays) {
  Between between(encryption_.get(), encryption_.get());
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{56}, std::size_t{16384}, 3 * kMegabyte}) {
    const std::string text = textOf(bytes);
    EXPECT_TRUE(between.carries(*between.client, *between.server, text)) << bytes;
    EXPECT_TRUE(between.carries(*between.server, *between.client, text)) << bytes;
  }
}

TEST_P(Streams, OnlyEncryptedNobodyBetweenReadsThem) {
  Between between(encryption_.get(), encryption_.get());
  const std::string text = textOf(20'000);
  ASSERT_TRUE(between.carries(*between.client, *between.server, text));
  ASSERT_TRUE(between.carries(*between.server, *between.client, text));
  for (const std::string& word : {text.substr(0, 24), text.substr(10'000, 24)}) {
    EXPECT_EQ(between.heard().find(word) == std::string::npos, GetParam());
  }
}

// What is full says so, and nothing is lost or sent twice.
TEST_P(Streams, AWriteThatIsCutOffGoesOnWhereItWas) {
  Between between(encryption_.get(), encryption_.get());
  ASSERT_TRUE(between.carry(*between.client, *between.server, "hello").ok());
  const std::string text = textOf(4 * kMegabyte);
  std::size_t sent = 0;
  for (;;) {
    const iovec rest{const_cast<char*>(text.data()) + sent, text.size() - sent};
    const auto n = between.client->write({&rest, 1});
    ASSERT_TRUE(n.ok()) << n.status();
    if (*n == 0) break;
    sent += *n;
  }
  EXPECT_TRUE(between.client->awaitsWritable());
  ASSERT_LT(sent, text.size());
  std::string got;
  for (int vain = 0; got.size() < text.size() && vain < kPatience; ++vain) {
    between.passOn();
    std::string some(text.size() - got.size(), '\0');
    const iovec part{some.data(), some.size()};
    got += some.substr(0, between.server->read({&part, 1}).value_or(0));
    if (sent == text.size()) continue;
    const iovec rest{const_cast<char*>(text.data()) + sent, text.size() - sent};
    sent += between.client->write({&rest, 1}).value_or(0);
  }
  EXPECT_TRUE(got == text);
}

// As when its process is killed: nobody says farewell. And no signal comes.
TEST_P(Streams, TheOtherSidesEndIsToldFromOtherFailures) {
  Between between(encryption_.get(), encryption_.get());
  ASSERT_TRUE(between.carry(*between.client, *between.server, "hello").ok());
  between.client.reset();
  between.passOn();
  std::string room(8, '\0');
  const iovec part{room.data(), room.size()};
  EXPECT_TRUE(wasClosed(between.server->read({&part, 1}).status()));
  const Status write = between.server->write({&part, 1}).status();
  EXPECT_TRUE(absl::IsUnavailable(write)) << write;
  EXPECT_FALSE(wasClosed(write)) << write;
}

// What somebody between sends of his own ends the connection.
TEST(TlsStream, WhatWasChangedOnItsWayIsNotTaken) {
  const auto tls = contextOf("token");
  Between between(tls.get(), tls.get());
  ASSERT_TRUE(between.carry(*between.client, *between.server, "hello").ok());
  between.forge(std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'x'));
  std::string room(8, '\0');
  const iovec part{room.data(), room.size()};
  const Status read = between.server->read({&part, 1}).status();
  EXPECT_TRUE(absl::IsUnavailable(read)) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr("TLS"));
}

TEST(TlsStream, ACertificateOfAnotherJobIsNotTakenAndHearsNothing) {
  const auto ours = contextOf("token");
  const auto theirs = contextOf("another token");
  const std::string secret = "what only ranks may hear";
  Between stranger_calls(theirs.get(), ours.get());
  EXPECT_FALSE(stranger_calls.carry(*stranger_calls.server, *stranger_calls.client, secret).ok());
  Between stranger_answers(ours.get(), theirs.get());
  EXPECT_FALSE(
      stranger_answers.carry(*stranger_answers.client, *stranger_answers.server, secret).ok());
}

TEST(TlsStream, WhoDoesNotEncryptIsNotTaken) {
  const auto tls = contextOf("token");
  Between plain_calls(nullptr, tls.get());
  EXPECT_FALSE(plain_calls.carry(*plain_calls.client, *plain_calls.server, "TYMESH").ok());
}

// Each change is a record of its own.
TEST(TlsStream, KeysAreChangedOnTheWay) {
  const std::string text = textOf(50 * 16384);
  const auto heardWith = [&](std::uint64_t records_per_key) {
    const auto tls = contextOf("token", records_per_key);
    Between between(tls.get(), tls.get());
    EXPECT_TRUE(between.carries(*between.client, *between.server, text));
    EXPECT_TRUE(between.carries(*between.server, *between.client, text));
    return between.heard().size();
  };
  const std::size_t never = heardWith(TlsContext::kRecordsPerKey);
  constexpr std::size_t kChange = 5 + 5 + 1 + 16;  // record, KeyUpdate, its kind, tag
  constexpr std::size_t kChanges = 2 * (50 / 10);
  EXPECT_GE(heardWith(10), never + (kChanges - 2) * kChange);
}

}  // namespace
}  // namespace trainyard::runtime::stream
