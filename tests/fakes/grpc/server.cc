#include "tests/fakes/grpc/server.h"

#include <unistd.h>

#include <cstring>

#include "tests/fakes/grpc/client.h"

namespace trainyard::fakes {
namespace {

// What arrives is cut here, in the middle of a float.
constexpr std::size_t kCut = 4098;

std::mutex connections_mutex;
std::map<std::uint64_t, std::weak_ptr<ServerCore>> connections;

}  // namespace

std::string joined(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!bytes.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
  return text;
}

grpc::ByteBuffer copied(const grpc::ByteBuffer& bytes) {
  const std::string text = joined(bytes);
  std::vector<grpc::Slice> slices;
  for (std::size_t at = 0; at < text.size(); at += kCut) slices.emplace_back(text.substr(at, kCut));
  return {slices.data(), slices.size()};
}

std::unique_ptr<Exchange> ServerCore::open(const std::string& method) const {
  const auto found = methods_.find(method);
  return found == methods_.end() ? nullptr : found->second();
}

bool ServerCore::enter(const std::shared_ptr<Call>& call) {
  std::lock_guard lock(mutex_);
  if (alive_) calls_.insert(call);
  return alive_;
}

void ServerCore::leave(const std::shared_ptr<Call>& call) {
  std::lock_guard lock(mutex_);
  calls_.erase(call);
  left_.notify_all();
}

bool ServerCore::alive() const {
  std::lock_guard lock(mutex_);
  return alive_;
}

void ServerCore::shutDown() {
  std::set<std::shared_ptr<Call>> ending;
  {
    std::lock_guard lock(mutex_);
    alive_ = false;
    ending = calls_;
  }
  for (const auto& call : ending) call->abandon();
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return calls_.empty(); });
}

std::shared_ptr<ServerCore> serverOfConnection(std::uint64_t number) {
  std::lock_guard lock(connections_mutex);
  const auto found = connections.find(number);
  return found == connections.end() ? nullptr : connections.extract(found).mapped().lock();
}

// What a channel sends: one byte that says which server it wants, and its number.
void announce(int fd, const std::shared_ptr<ServerCore>& server) {
  char greeting[1 + sizeof(std::uint64_t)];
  std::size_t got = 0;
  while (server != nullptr && got < sizeof greeting) {
    const ssize_t more = ::read(fd, greeting + got, sizeof greeting - got);
    if (more <= 0) break;
    got += static_cast<std::size_t>(more);
  }
  if (got == sizeof greeting) {
    std::uint64_t number = 0;
    std::memcpy(&number, greeting + 1, sizeof number);
    {
      std::lock_guard lock(connections_mutex);
      connections[number] = server;
    }
    [[maybe_unused]] const ssize_t told = ::write(fd, greeting, 1);
  }
  ::close(fd);
}

}  // namespace trainyard::fakes

namespace grpc {

void ServerUnaryReactor::StartSendInitialMetadata() {
  std::shared_ptr<trainyard::fakes::Call> call;
  {
    std::lock_guard lock(mutex_);
    early_metadata_ = call_ == nullptr;
    call = call_;
  }
  if (call != nullptr) call->sendMetadata();
}

void ServerUnaryReactor::Finish(Status status) {
  std::shared_ptr<trainyard::fakes::Call> call;
  {
    std::lock_guard lock(mutex_);
    if (call_ == nullptr) early_finish_ = status;
    call = call_;
  }
  if (call != nullptr) call->finish(status);
}

void ServerUnaryReactor::bind(std::shared_ptr<trainyard::fakes::Call> call) {
  bool metadata = false;
  std::optional<Status> status;
  {
    std::lock_guard lock(mutex_);
    call_ = call;
    metadata = early_metadata_;
    status = early_finish_;
  }
  // Without a status another thread may finish it from here on.
  if (metadata) call->sendMetadata();
  if (status) call->finish(*status);
}

ServerContextBase::ServerContextBase(const trainyard::fakes::Metadata& metadata, bool authenticated)
    : metadata_(metadata), auth_(std::make_shared<AuthContext>(authenticated)) {
  for (const auto& [key, value] : metadata_) views_.emplace(key, value);
}

namespace experimental {
void ExternalConnectionAcceptor::HandleNewConnection(NewConnectionParameters* parameters) {
  trainyard::fakes::announce(parameters->fd, server.lock());
}
}  // namespace experimental

std::unique_ptr<experimental::ExternalConnectionAcceptor>
ServerBuilder::experimental_type::AddExternalConnectionAcceptor(
    ExternalConnectionType, std::shared_ptr<ServerCredentials> credentials) {
  auto acceptor = std::make_unique<experimental::ExternalConnectionAcceptor>();
  builder_->credentials_ = std::move(credentials);
  builder_->acceptor_ = acceptor.get();
  return acceptor;
}

std::unique_ptr<Server> ServerBuilder::BuildAndStart() {
  auto core = std::make_shared<trainyard::fakes::ServerCore>(methods_, *credentials_, most_bytes_);
  acceptor_->server = core;
  return std::make_unique<Server>(std::move(core));
}

}  // namespace grpc
