// Keys that are lent: when they are asked for, and what is done while nobody answers. Against a
// real token service: tests/conformance/storage.
#include "base/core/rfc3339.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/storage/s3/client.h"
#include "runtime/storage/s3/keys.h"
#include "runtime/storage/storage.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/storage/scripted_http.h"

namespace trainyard::runtime::s3 {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class S3KeysTest : public testing::Test {
 protected:
  S3KeysTest() {
    identity_.role = "arn:aws:iam::1:role/r";
    identity_.token_file = (dir_.path() / "token").string();
    identity_.session = "trainyard";
    identity_.endpoint = "https://sts.lab";
    writeToken("first+token\n");
  }
  void writeToken(const std::string& token) {
    ASSERT_EQ(writeStored(identity_.token_file, token), absl::OkStatus());
  }
  Response lent(const std::string& key, Duration life) const {
    const UnixMillis end =
        clock_.unixMillis() + std::chrono::duration_cast<std::chrono::milliseconds>(life).count();
    return answer(
        200,
        fmt::format("<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/\">"
                    "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{}</AccessKeyId>"
                    "<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
                    "<Expiration>{}</Expiration></Credentials>"
                    "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
                    key, formatRfc3339(end)));
  }
  std::string keyOf(KeyRing& ring) {
    const StatusOr<Keys> keys = ring.current();
    return keys.ok() ? keys->access_key : std::string(keys.status().message());
  }

  TempDir dir_;
  FakeClock clock_;
  ScriptedHttp lender_;
  WebIdentity identity_;
};

TEST_F(S3KeysTest, GivenKeysAreThoseThatThereAre) {
  KeyRing ring(Keys{.access_key = "a", .secret_key = "b", .session_token = ""}, lender_, clock_);
  EXPECT_EQ(keyOf(ring), "a");
  EXPECT_FALSE(ring.drop(*ring.current()));
  EXPECT_EQ(keyOf(ring), "a");
  EXPECT_TRUE(lender_.asked.empty());
}

TEST_F(S3KeysTest, ARoleIsAskedForWithTheTokenThatIsThere) {
  KeyRing ring(identity_, lender_, clock_);
  lender_.answers = {lent("k1", std::chrono::hours(1)), lent("k2", std::chrono::hours(2))};
  EXPECT_EQ(keyOf(ring), "k1");
  EXPECT_EQ(ring.current()->session_token, "t");
  ASSERT_EQ(lender_.asked.size(), 1U);
  EXPECT_EQ(lender_.requests[0].method + " " + lender_.requests[0].scheme_and_host,
            "POST https://sts.lab");
  EXPECT_EQ(lender_.bodies[0],
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15"
            "&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=trainyard"
            "&WebIdentityToken=first%2Btoken");
  clock_.advance(std::chrono::minutes(50));
  EXPECT_EQ(keyOf(ring), "k1") << "more than five minutes are left";
  writeToken("second");
  clock_.advance(std::chrono::minutes(6));
  EXPECT_EQ(keyOf(ring), "k2");
  EXPECT_THAT(lender_.bodies[1], HasSubstr("WebIdentityToken=second"));
}

TEST_F(S3KeysTest, WhileNobodyAnswersTheFormerOnesAreGoodUntilTheirEnd) {
  KeyRing ring(identity_, lender_, clock_);
  lender_.answers = {lent("k1", std::chrono::seconds(60)), absl::UnavailableError("no answer"),
                     absl::UnavailableError("no answer"), lent("k2", std::chrono::seconds(200))};
  EXPECT_EQ(keyOf(ring), "k1");
  clock_.advance(std::chrono::seconds(31));
  EXPECT_EQ(keyOf(ring), "k1");
  EXPECT_EQ(keyOf(ring), "k1");
  EXPECT_EQ(lender_.asked.size(), 2U) << "not with each request";
  clock_.advance(std::chrono::seconds(29));
  EXPECT_EQ(keyOf(ring), "keys of role arn:aws:iam::1:role/r from https://sts.lab: no answer");
  EXPECT_EQ(keyOf(ring), "k2");
}

TEST_F(S3KeysTest, ARefusalIsTheServicesWords) {
  KeyRing ring(identity_, lender_, clock_);
  lender_.answers = {answer(403,
                            "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized"
                            "</Message></Error></ErrorResponse>"),
                     answer(503, ""),
                     answer(400,
                            "<ErrorResponse><Error><Code>IDPCommunicationError</Code></Error>"
                            "</ErrorResponse>")};
  Status refused = ring.current().status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("AccessDenied: Not authorized"));
  EXPECT_TRUE(absl::IsUnavailable(ring.current().status()));
  EXPECT_TRUE(absl::IsUnavailable(ring.current().status()));
  identity_.token_file += "-lost";
  KeyRing lost(identity_, lender_, clock_);
  refused = lost.current().status();
  EXPECT_THAT(std::string(refused.message()),
              AllOf(StartsWith("keys of role"), HasSubstr(identity_.token_file)));
}

TEST_F(S3KeysTest, AServerOfKeysIsShownTheToken) {
  KeyServer server{
      .url = "http://127.0.0.1:99/v1/keys?of=pod", .token = "", .token_file = identity_.token_file};
  KeyRing ring(server, lender_, clock_);
  lender_.answers = {answer(400, R"({"code": "InvalidToken", "message": "of nobody"})"),
                     answer(200, R"({"AccessKeyId": "k", "SecretAccessKey": "s", "Token": "t",
                      "Expiration": "2100-01-01T00:00:00Z"})"),
                     answer(200, "[]")};
  EXPECT_EQ(keyOf(ring), "keys from http://127.0.0.1:99/v1/keys?of=pod: InvalidToken: of nobody");
  EXPECT_EQ(keyOf(ring), "k");
  EXPECT_EQ(lender_.requests[0].method + " " + lender_.requests[0].path, "GET /v1/keys?of=pod");
  EXPECT_EQ(lender_.requests[0].host, "127.0.0.1:99");
  EXPECT_EQ(lender_.requests[0].headers["authorization"], "first+token");
  EXPECT_TRUE(ring.drop(*ring.current()));
  EXPECT_THAT(keyOf(ring), HasSubstr("no keys"));
}

TEST_F(S3KeysTest, KeysThatTheStoreDoesNotTakeAnyMoreAreAskedForAnewOnce) {
  auto http = std::make_unique<ScriptedHttp>();
  ScriptedHttp& both = *http;
  S3Config config;
  config.endpoint = "http://store";
  config.keys = identity_;
  Client client(std::move(config), std::move(http),
                {clock_, [this](Duration delay) { clock_.advance(delay); }});
  const Response over = answer(403, "<Error><Code>ExpiredToken</Code><Message>m</Message></Error>");
  both.answers = {lent("k1", std::chrono::hours(1)), over, lent("k2", std::chrono::hours(1)),
                  answer(200, "")};
  const ObjectName name{"data", "file"};
  EXPECT_EQ(client.put(name, std::as_bytes(std::span("text", 4)), false), absl::OkStatus());
  ASSERT_EQ(both.requests.size(), 4U);
  EXPECT_THAT(both.requests[3].headers["authorization"], HasSubstr("Credential=k2/"));
  both.answers = {over, lent("k3", std::chrono::hours(1)), over};
  both.requests.clear();
  const Status refused = client.remove(name);
  EXPECT_EQ(refused.message(), "s3://data/file: ExpiredToken: m");
  EXPECT_EQ(both.requests.size(), 3U);
}

}  // namespace
}  // namespace trainyard::runtime::s3
