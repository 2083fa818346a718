#include "base/rpc/token.h"

#include <algorithm>

#include "base/core/strings.h"
#include "base/process/files.h"

namespace trainyard {
namespace {

constexpr std::size_t kTokenLength = 64;
constexpr std::size_t kMaxFileBytes = 256;

bool isLowerHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

}  // namespace

StatusOr<std::string> readToken(const std::filesystem::path& path) {
  TY_ASSIGN_OR_RETURN(const std::string text, readFile(path, kMaxFileBytes));
  const std::string_view token = trim(text);
  if (token.size() != kTokenLength || !std::all_of(token.begin(), token.end(), isLowerHex)) {
    return invalidInput(path.native(), "expected a token of 64 hexadecimal characters");
  }
  return std::string(token);
}

void addToken(grpc::ClientContext& context, const std::string& token) {
  context.AddMetadata(kTokenKey, token);
}

grpc::Status checkToken(const grpc::ServerContextBase& context, std::string_view token) {
  const auto& metadata = context.client_metadata();
  const auto entry = metadata.find(kTokenKey);
  const bool match = entry != metadata.end() &&
                     equalInConstantTime({entry->second.data(), entry->second.size()}, token);
  if (match) return grpc::Status::OK;
  return {grpc::StatusCode::UNAUTHENTICATED, "missing or wrong trainyard-token"};
}

}  // namespace trainyard
