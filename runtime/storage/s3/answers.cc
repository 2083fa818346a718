#include "runtime/storage/s3/answers.h"

#include <sstream>

#include "base/core/rfc3339.h"
#include "base/core/strings.h"
#include "boost/property_tree/ptree.hpp"
#include "boost/property_tree/xml_parser.hpp"
#include "fmt/format.h"

namespace trainyard::runtime::s3 {
namespace {

using Tree = boost::property_tree::ptree;

// The element `root` of a document; nothing: it is another, or no XML.
std::optional<Tree> parse(std::string_view xml, const char* root) {
  std::istringstream stream{std::string(xml)};
  Tree document;
  try {
    boost::property_tree::read_xml(stream, document);
  } catch (const boost::property_tree::xml_parser_error&) {
    return std::nullopt;
  }
  const auto found = document.get_child_optional(root);
  if (!found) return std::nullopt;
  return *found;
}

Status noAnswer(const char* root) {
  return absl::InternalError(fmt::format("the answer is no {}", root));
}

}  // namespace

StatusOr<Listing> parseListing(std::string_view xml) {
  const auto result = parse(xml, "ListBucketResult");
  if (!result) return noAnswer("ListBucketResult");
  Listing listing;
  for (const auto& [name, element] : *result) {
    if (name != "Contents") continue;
    const auto size = parseNumber<std::uint64_t>(element.get("Size", ""));
    const std::string key = element.get("Key", "");
    if (!size || key.empty()) return noAnswer("ListBucketResult");
    const UnixMillis modified = parseRfc3339(element.get("LastModified", ""));
    listing.files.push_back({.name = key, .size = *size, .modified_ns = modified * 1'000'000});
  }
  if (result->get("IsTruncated", "") == "true") {
    listing.next = result->get("NextContinuationToken", "");
    if (listing.next.empty()) return noAnswer("ListBucketResult");
  }
  return listing;
}

StatusOr<std::string> parseUploadId(std::string_view xml) {
  const auto result = parse(xml, "InitiateMultipartUploadResult");
  std::string id = result ? result->get("UploadId", "") : "";
  if (id.empty()) return noAnswer("InitiateMultipartUploadResult");
  return id;
}

std::string completeText(const std::vector<std::string>& tags) {
  Tree document;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    Tree part;
    part.put("PartNumber", i + 1);
    part.put("ETag", tags[i]);
    document.add_child("CompleteMultipartUpload.Part", part);
  }
  std::ostringstream text;
  boost::property_tree::write_xml(text, document);
  return text.str();
}

StatusOr<Keys> parseRoleKeys(std::string_view xml) {
  constexpr const char* kRoot = "AssumeRoleWithWebIdentityResponse";
  const auto given = parse(xml,
                           "AssumeRoleWithWebIdentityResponse."
                           "AssumeRoleWithWebIdentityResult.Credentials");
  if (!given) return noAnswer(kRoot);
  Keys keys{.access_key = given->get("AccessKeyId", ""),
            .secret_key = given->get("SecretAccessKey", ""),
            .session_token = given->get("SessionToken", ""),
            .expires = parseRfc3339(given->get("Expiration", ""))};
  if (keys.access_key.empty() || keys.secret_key.empty()) return noAnswer(kRoot);
  return keys;
}

ErrorAnswer parseError(std::string_view xml) {
  auto error = parse(xml, "Error");
  if (!error) error = parse(xml, "ErrorResponse.Error");
  if (!error) return {};
  return {.code = error->get("Code", ""), .message = error->get("Message", "")};
}

}  // namespace trainyard::runtime::s3
