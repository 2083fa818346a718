// Against the examples of "Signature Calculations for the Authorization Header" (Amazon S3 API
// Reference).
#include <span>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/storage/s3/config.h"
#include "runtime/storage/s3/signature.h"

namespace trainyard::runtime::s3 {
namespace {

using testing::HasSubstr;

constexpr UnixMillis kMay24 = 1'369'353'600'000;  // 2013-05-24T00:00:00Z

constexpr const char* kRegion = "us-east-1";

Keys exampleKeys() {
  Keys keys;
  keys.access_key = "AKIAIOSFODNN7EXAMPLE";
  keys.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
  return keys;
}

Request requestFor(const std::string& method, const std::string& path) {
  Request request;
  request.method = method;
  request.host = "examplebucket.s3.amazonaws.com";
  request.path = path;
  return request;
}

std::string signatureOf(Request request) {
  sign(exampleKeys(), kRegion, kMay24, request);
  const std::string& text = request.headers["authorization"];
  return text.substr(text.find("Signature=") + 10);
}

TEST(S3Signature, OfARangeOfAnObject) {
  Request request = requestFor("GET", "/test.txt");
  request.headers["range"] = "bytes=0-9";
  EXPECT_EQ(signatureOf(request),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  sign(exampleKeys(), kRegion, kMay24, request);
  EXPECT_THAT(request.headers["authorization"],
              HasSubstr("AWS4-HMAC-SHA256 "
                        "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
                        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature="));
}

TEST(S3Signature, OfABody) {
  const std::string_view body = "Welcome to Amazon S3.";
  Request request = requestFor("PUT", encodePath("/test$file.text"));
  request.headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                     {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
  request.body = std::as_bytes(std::span(body.data(), body.size()));
  EXPECT_EQ(signatureOf(request),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(S3Signature, OfAQuery) {
  Request request = requestFor("GET", "/");
  request.query = {{"lifecycle", ""}};
  EXPECT_EQ(signatureOf(request),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  request.query = {{"max-keys", "2"}, {"prefix", "J"}};
  EXPECT_EQ(signatureOf(request),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(S3Signature, ATokenIsSignedToo) {
  Keys keys = exampleKeys();
  keys.session_token = "token";
  Request request = requestFor("GET", "/");
  sign(keys, kRegion, kMay24, request);
  EXPECT_EQ(request.headers["x-amz-security-token"], "token");
  EXPECT_THAT(request.headers["authorization"], HasSubstr("x-amz-date;x-amz-security-token,"));
}

Environment given(std::map<std::string, std::string> values) {
  return [values](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string() : found->second;
  };
}

TEST(S3Config, NamesTheVariableThatIsMissingOrWrong) {
  const auto keyless = configOf(given({{"AWS_ACCESS_KEY_ID", "a"}}));
  EXPECT_THAT(std::string(keyless.status().message()),
              HasSubstr("AWS_SECRET_ACCESS_KEY is not set"));
  for (const char* endpoint : {"minio:9000", "https://a/b", "https://", "ftp://a"}) {
    const auto config = configOf(given({{"AWS_ACCESS_KEY_ID", "a"},
                                        {"AWS_SECRET_ACCESS_KEY", "b"},
                                        {"AWS_ENDPOINT_URL", endpoint}}));
    EXPECT_THAT(std::string(config.status().message()), HasSubstr("http[s]://host[:port]"))
        << endpoint;
  }
}

TEST(S3Config, KeysAreGivenOrLent) {
  std::map<std::string, std::string> values = {
      {"AWS_REGION", "eu-central-1"},
      {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"},
      {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/var/run/token"}};
  auto config = configOf(given(values));
  ASSERT_TRUE(config.ok()) << config.status();
  const KeyServer server = std::get<KeyServer>(config->keys);
  EXPECT_EQ(server.url, "http://169.254.170.23/v1/credentials");
  EXPECT_EQ(server.token_file, "/var/run/token");

  values["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/var/run/identity";
  EXPECT_THAT(std::string(configOf(given(values)).status().message()),
              HasSubstr("AWS_ROLE_ARN is not set"));
  values["AWS_ROLE_ARN"] = "arn:aws:iam::1:role/r";
  config = configOf(given(values));
  ASSERT_TRUE(config.ok()) << config.status();
  WebIdentity identity = std::get<WebIdentity>(config->keys);
  EXPECT_EQ(identity.role, "arn:aws:iam::1:role/r");
  EXPECT_EQ(identity.endpoint, "https://sts.eu-central-1.amazonaws.com");
  values["AWS_ENDPOINT_URL"] = "http://minio:9000/";
  EXPECT_EQ(std::get<WebIdentity>(configOf(given(values))->keys).endpoint, "http://minio:9000");
  values["AWS_ENDPOINT_URL_STS"] = "minio";
  EXPECT_THAT(std::string(configOf(given(values)).status().message()),
              HasSubstr("AWS_ENDPOINT_URL_STS"));

  values["AWS_ACCESS_KEY_ID"] = "a";
  values["AWS_SECRET_ACCESS_KEY"] = "b";
  EXPECT_EQ(std::get<Keys>(configOf(given(values))->keys).access_key, "a");
}

TEST(S3Config, ATokenIsToldToNobodyWithoutTls) {
  const auto code = [](const std::string& url) {
    return configOf(given({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url}})).status().code();
  };
  for (const char* url : {"http://127.0.0.1:99/a", "http://[::1]:99/a", "https://lender/a",
                          "http://[fd00:ec2::23]/a", "http://169.254.170.2"})
    EXPECT_EQ(code(url), absl::StatusCode::kOk) << url;
  for (const char* url : {"http://lender/a", "http://127.0.0.1.lender/a", "lender", "ftp://a"})
    EXPECT_EQ(code(url), absl::StatusCode::kInvalidArgument) << url;
}

TEST(S3Config, NoProxyLeadsToALenderOnTheNode) {
  const auto config = configOf(given({{"AWS_ACCESS_KEY_ID", "a"},
                                      {"AWS_SECRET_ACCESS_KEY", "b"},
                                      {"ALL_PROXY", "http://proxy:3128"}}));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_NE(proxyFor(config->proxies, false, "lender", 80), nullptr);
  for (const char* host : {"169.254.170.2", "169.254.170.23", "fd00:ec2::23"})
    EXPECT_EQ(proxyFor(config->proxies, false, host, 80), nullptr) << host;
}

TEST(S3Config, AnEndpointHasBucketsInItsPathsAndAwsAsHosts) {
  S3Config config;
  config.region = "eu-central-1";
  ObjectUrl url = urlOf(config, {"data", "a b/c"});
  EXPECT_EQ(url.scheme_and_host, "https://data.s3.eu-central-1.amazonaws.com");
  EXPECT_EQ(url.path, "/a%20b/c");
  url = urlOf(config, {"data.lab", "c"});
  EXPECT_EQ(url.host, "s3.eu-central-1.amazonaws.com") << "the certificate has one level";
  EXPECT_EQ(url.path, "/data.lab/c");
  config.endpoint = "http://minio.lab:9000";
  url = urlOf(config, {"data", ""});
  EXPECT_EQ(url.host, "minio.lab:9000");
  EXPECT_EQ(url.path, "/data");
  config.endpoint = "https://minio.lab:443";
  EXPECT_EQ(urlOf(config, {"data", "k"}).host, "minio.lab") << "as it is sent";
}

TEST(S3Config, NamesOfObjects) {
  const auto name = parseObjectName("s3://bucket/lab/job/step-1.e1.json");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->bucket, "bucket");
  EXPECT_EQ(name->key, "lab/job/step-1.e1.json");
  EXPECT_EQ(parseObjectName("s3://bucket")->key, "");
  for (const char* wrong : {"s3://", "s3:///key", "s3://Bucket/x", "s3://a_b/x", "s3://ab/x", "/x"})
    EXPECT_TRUE(absl::IsInvalidArgument(parseObjectName(wrong).status())) << wrong;
}

}  // namespace
}  // namespace trainyard::runtime::s3
