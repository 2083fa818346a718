// Secrets that calls carry as metadata, and servers of ours check first: the job's token where
// nobody can listen (to an agent, encrypted or on its own machine), and in pushes and pulls a key
// that is good for nothing else (RuntimeKeys::data).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/core/status.h"
#include "base/security/constant_time.h"
#include "grpcpp/grpcpp.h"

namespace trainyard {

inline constexpr char kTokenKey[] = "trainyard-token";

// The token in a file: 64 lowercase hexadecimal characters, blanks around them ignored.
// INVALID_ARGUMENT naming the file when it holds anything else (never its content).
StatusOr<std::string> readToken(const std::filesystem::path& path);

void addToken(grpc::ClientContext& context, const std::string& token);

// OK, or UNAUTHENTICATED when the call carries no token or another one.
grpc::Status checkToken(const grpc::ServerContextBase& context, std::string_view token);

}  // namespace trainyard
