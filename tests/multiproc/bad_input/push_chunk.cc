// push-chunk ADDRESS TOKEN_FILE PROTOCOL: sends a parameter server one request for a chunk and says
// on standard error how it was refused.
#include <iostream>
#include <string>

#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/rpc/channel.h"
#include "base/rpc/token.h"
#include "base/security/job_keys.h"
#include "trainyard/v1/parameter_server.grpc.pb.h"

namespace trainyard {
namespace {

int pushChunk(const std::string& address, const std::string& token_file, std::uint32_t protocol) {
  const auto token = readToken(token_file);
  if (!token.ok()) {
    std::cerr << "push-chunk: " << token.status() << "\n";
    return kExitUsage;
  }
  const auto stub = v1::ParameterServer::NewStub(openChannel(address));
  grpc::ClientContext context;
  addToken(context, deriveRuntimeKeys(*token).data);
  setDeadline(context, std::chrono::seconds(60));
  v1::ChunkRequest request;
  request.mutable_header()->set_protocol(protocol);
  v1::ChunkReply reply;
  const grpc::Status status = stub->PushPull(&context, request, &reply);
  if (!status.ok()) {
    std::cerr << "push-chunk: " << status.error_message() << "\n";
    return kExitFailure;
  }
  std::cout << "answered with code " << reply.header().code() << "\n";
  return kExitOk;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  const auto protocol =
      argc == 4 ? trainyard::parseNumber<std::uint32_t>(argv[3]) : std::optional<std::uint32_t>();
  if (!protocol) {
    std::cerr << "push-chunk ADDRESS TOKEN_FILE PROTOCOL\n";
    return trainyard::kExitUsage;
  }
  return trainyard::pushChunk(argv[1], argv[2], *protocol);
}
