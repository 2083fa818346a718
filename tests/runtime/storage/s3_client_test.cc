// What a client makes of answers that a store seldom gives. Against a real one:
// tests/conformance/storage.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/storage/s3/client.h"
#include "tests/runtime/storage/scripted_http.h"

namespace trainyard::runtime::s3 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string errorText(const std::string& code) {
  return "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>words</Message></Error>";
}

class S3ClientTest : public testing::Test {
 protected:
  S3ClientTest() {
    auto http = std::make_unique<ScriptedHttp>();
    script_ = http.get();
    S3Config config;
    config.endpoint = "http://store";
    config.keys = Keys{.access_key = "a", .secret_key = "b", .session_token = ""};
    client_ = std::make_unique<Client>(std::move(config), std::move(http),
                                       Client::Surroundings{clock_, [this](Duration delay) {
                                                              clock_.advance(delay);
                                                              slept_ += delay;
                                                            }});
  }
  template <typename... Answers>
  void willAnswer(Answers... answers) {
    script_->answers = {StatusOr<Response>(std::move(answers))...};
  }
  Status put(bool exclusively) {
    return client_->put(name_, std::as_bytes(std::span("text", 4)), exclusively);
  }

  const ObjectName name_{"data", "job/file"};
  const Status lost_ = absl::UnavailableError("connection lost");
  FakeClock clock_;
  Duration slept_{};
  ScriptedHttp* script_ = nullptr;
  std::unique_ptr<Client> client_;
};

TEST_F(S3ClientTest, WhatPassesIsTriedAgainSignedAnew) {
  willAnswer(lost_, answer(503, errorText("SlowDown")), answer(400, errorText("RequestTimeout")),
             answer(200));
  EXPECT_EQ(put(false), absl::OkStatus());
  EXPECT_EQ(script_->asked.size(), 4U);
  EXPECT_GT(slept_, std::chrono::milliseconds(300));
}

TEST_F(S3ClientTest, AStoreThatIsGoneIsGivenUpInSeconds) {
  willAnswer(lost_);
  const Status status = put(false);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(status.message(), "s3://data/job/file: connection lost");
  EXPECT_GT(slept_, std::chrono::seconds(8));
  EXPECT_LE(slept_, std::chrono::seconds(15));
}

TEST_F(S3ClientTest, DelaysGrowAndEnd) {
  EXPECT_EQ(delayBeforeRetry(1, Duration(0), 0), std::chrono::milliseconds(50));
  EXPECT_EQ(delayBeforeRetry(3, Duration(0), 0), std::chrono::milliseconds(200));
  EXPECT_EQ(delayBeforeRetry(40, Duration(0), 0), std::chrono::seconds(2));
  EXPECT_EQ(delayBeforeRetry(9, std::chrono::seconds(14), 0.5), std::nullopt);
}

TEST_F(S3ClientTest, ARefusalIsTheStoresWords) {
  willAnswer(answer(403, errorText("SignatureDoesNotMatch")));
  const Status refused = put(false);
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(refused.message(), "s3://data/job/file: SignatureDoesNotMatch: words");
  EXPECT_EQ(script_->asked.size(), 1U) << "trying again does not help";
  willAnswer(answer(507, errorText("XMinioStorageFull")));
  EXPECT_TRUE(absl::IsResourceExhausted(put(false)));
  willAnswer(answer(404, "no XML"));
  EXPECT_EQ(client_->get(name_, 0, 10).status().message(),
            "s3://data/job/file: the store answers 404");
}

TEST_F(S3ClientTest, AnExclusivePutWhoseAnswerWasLostIsOurs) {
  const std::map<std::string, std::string> range = {{"content-range", "bytes 0-3/4"}};
  willAnswer(lost_, answer(412), answer(206, "text", range));
  EXPECT_EQ(put(true), absl::OkStatus());
  EXPECT_EQ(script_->requests.front().headers["if-none-match"], "*");
  willAnswer(lost_, answer(412), answer(206, "mine", range));
  EXPECT_TRUE(absl::IsAlreadyExists(put(true))) << "somebody else's";
  script_->asked.clear();
  willAnswer(answer(412));
  EXPECT_TRUE(absl::IsAlreadyExists(put(true)));
  EXPECT_EQ(script_->asked.size(), 1U) << "nothing of ours was on its way before";
}

TEST_F(S3ClientTest, Ranges) {
  willAnswer(answer(206, "cd", {{"content-range", "bytes 2-3/10"}, {"etag", "\"v\""}}));
  const auto part = client_->get(name_, 2, 2, "\"v\"");
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->bytes, "cd");
  EXPECT_EQ(part->size, 10U);
  EXPECT_EQ(script_->requests.back().headers["range"], "bytes=2-3");
  EXPECT_EQ(script_->requests.back().headers["if-match"], "\"v\"");
  willAnswer(answer(416, "", {{"content-range", "bytes */0"}}));
  EXPECT_EQ(client_->get(name_, 0, 2)->size, 0U) << "an empty object has no range";
  willAnswer(answer(412));
  EXPECT_TRUE(absl::IsDataLoss(client_->get(name_, 0, 2, "\"v\"").status()));
  willAnswer(answer(206, "c", {{"content-range", "bytes 2-3/10"}}));
  EXPECT_TRUE(absl::IsDataLoss(client_->get(name_, 2, 2).status())) << "less than it says";
}

TEST_F(S3ClientTest, ListsPageByPage) {
  const std::string contents =
      "<Contents><Key>job/a&amp;b</Key><Size>3</Size>"
      "<LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>";
  willAnswer(answer(200, "<ListBucketResult><IsTruncated>true</IsTruncated>" + contents +
                             "<NextContinuationToken>t/1</NextContinuationToken>"
                             "</ListBucketResult>"),
             answer(200, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"));
  const auto files = client_->list("data", "job/");
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 1U);
  EXPECT_EQ(files->front().name, "a&b");
  EXPECT_EQ(files->front().size, 3U);
  EXPECT_EQ(files->front().modified_ns, 1'767'323'045'000'000'000);
  EXPECT_THAT(script_->asked,
              ElementsAre("GET /data?delimiter=%2F&list-type=2&prefix=job%2F",
                          "GET /data?continuation-token=t%2F1&delimiter=%2F&list-type=2&prefix="
                          "job%2F"));
  for (const char* wrong :
       {"", "<html/>", "<ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"}) {
    willAnswer(answer(200, wrong));
    EXPECT_TRUE(absl::IsInternal(client_->list("data", "job/").status())) << wrong;
  }
}

TEST_F(S3ClientTest, AnUploadThatFailsWhileItIsAnswered) {
  willAnswer(answer(200, errorText("InternalError")));
  const Status failed = client_->completeUpload(name_, "u", {"\"1\"", "\"2\""}, false);
  EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
  EXPECT_THAT(script_->bodies.back(),
              HasSubstr("<Part><PartNumber>2</PartNumber><ETag>&quot;2&quot;</ETag></Part>"));
  // The first try had been carried out.
  willAnswer(lost_, answer(404, errorText("NoSuchUpload")),
             answer(206, "x", {{"content-range", "bytes 0-0/9"}}));
  EXPECT_EQ(client_->completeUpload(name_, "u", {"\"1\""}, false), absl::OkStatus());
  willAnswer(answer(404, errorText("NoSuchUpload")));
  EXPECT_TRUE(absl::IsNotFound(client_->completeUpload(name_, "u", {"\"1\""}, false)));
}

}  // namespace
}  // namespace trainyard::runtime::s3
