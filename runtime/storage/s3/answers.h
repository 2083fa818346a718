// What an object store answers in XML. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/storage/s3/config.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime::s3 {

// ListObjectsV2. INTERNAL: it is none.
struct Listing {
  std::vector<StoredFile> files;  // `name` is the whole key
  std::string next;               // continuation token; "": there is no more
};
StatusOr<Listing> parseListing(std::string_view xml);

// UploadId of an InitiateMultipartUploadResult.
StatusOr<std::string> parseUploadId(std::string_view xml);

// The body of CompleteMultipartUpload; tags by part, the first has number 1.
std::string completeText(const std::vector<std::string>& tags);

// The keys of an AssumeRoleWithWebIdentityResponse (AWS Security Token Service API Reference).
StatusOr<Keys> parseRoleKeys(std::string_view xml);

// An Error, as which a CompleteMultipartUpload may be answered with status 200, too; or that of a
// token service's ErrorResponse.
struct ErrorAnswer {
  std::string code;  // "NoSuchKey"; "": it is none
  std::string message;
};
ErrorAnswer parseError(std::string_view xml);

}  // namespace trainyard::runtime::s3
