// push-chunk ADDRESS TOKEN_FILE LIFE PROTOCOL: sends ps-0 one request for a chunk, over a lane to
// its process LIFE ("CREATED.START"), and says on standard error how it was refused.
#include <future>
#include <iostream>
#include <optional>
#include <string>

#include "base/core/exit_code.h"
#include "base/core/strings.h"
#include "base/rpc/token.h"
#include "base/security/job_keys.h"
#include "runtime/ps/chunk_client.h"

namespace trainyard {
namespace {

namespace ps = runtime::ps;

std::optional<v1::Incarnation> lifeOf(std::string_view text) {
  const auto [first, second] = splitFirst(text, '.');
  const auto created = parseNumber<std::uint32_t>(first);
  const auto start = parseNumber<std::uint32_t>(second);
  if (!created || !start) return std::nullopt;
  v1::Incarnation life;
  life.set_created(*created);
  life.set_start(*start);
  return life;
}

// What becomes of the request, at the latest after the limit of a call.
ps::ChunkReply push(const std::string& address, const std::string& token,
                    const v1::ChunkRequestHeader& header) {
  std::promise<ps::ChunkReply> answer;
  ps::ChunkEvents events;
  events.received = [](std::uint32_t, std::uint64_t) {};
  events.replied = [&](const ps::ChunkReply& reply) {
    answer.set_value(reply);
    return std::vector<std::span<float>>();
  };
  events.stored = [](const ps::ChunkReply&) {};
  events.cut = [](const ps::ChunkReply&, const Status&) {};
  ps::ChunkClient::Options options;
  options.access = {{deriveRuntimeKeys(token).data}, {v1::ROLE_WORKER, 0, {}}};
  options.call_limit = std::chrono::seconds(60);
  ps::ChunkClient client(std::move(options), std::move(events));
  client.setAddress(0, address);
  const auto sent = client.send(0, 1, header, {});
  if (!sent.ok()) return {.status = sent.status()};
  return answer.get_future().get();
}

int pushChunk(const std::string& address, const std::string& token_file,
              const v1::Incarnation& life, std::uint32_t protocol) {
  const auto token = readToken(token_file);
  if (!token.ok()) {
    std::cerr << "push-chunk: " << token.status() << "\n";
    return kExitUsage;
  }
  v1::ChunkRequestHeader header;
  header.set_protocol(protocol);
  *header.mutable_server() = life;
  const ps::ChunkReply reply = push(address, *token, header);
  if (!reply.status.ok()) {
    std::cerr << "push-chunk: " << fromAbsl(reply.status.message()) << "\n";
    return kExitFailure;
  }
  std::cout << "answered with code " << reply.header.code() << "\n";
  return kExitOk;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  const auto life = argc == 5 ? trainyard::lifeOf(argv[3]) : std::nullopt;
  const auto protocol =
      argc == 5 ? trainyard::parseNumber<std::uint32_t>(argv[4]) : std::optional<std::uint32_t>();
  if (!life || !protocol) {
    std::cerr << "push-chunk ADDRESS TOKEN_FILE LIFE PROTOCOL\n";
    return trainyard::kExitUsage;
  }
  return trainyard::pushChunk(argv[1], argv[2], *life, *protocol);
}
