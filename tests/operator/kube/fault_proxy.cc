#include "tests/operator/kube/fault_proxy.h"

#include <set>

#include "fmt/format.h"

namespace trainyard::control {

namespace {

// What the proxy decides itself, on either side.
const std::set<std::string> kOwnHeaders = {
    "host",           "authorization",     "connection",
    "content-length", "transfer-encoding", "accept-encoding"};

HttpRequest toUpstream(const SeenRequest& seen) {
  HttpRequest request{seen.method, seen.target, {}, seen.body};
  for (const auto& [name, value] : seen.headers) {
    if (!kOwnHeaders.contains(name)) request.headers.emplace_back(name, value);
  }
  return request;
}

std::string headOf(const HttpResponse& response) {
  std::string head =
      fmt::format("HTTP/1.1 {} x\r\nTransfer-Encoding: chunked\r\n", response.status);
  for (const char* name : {"Content-Type", "Retry-After"}) {
    const std::string_view value = response.header(name);
    if (!value.empty()) head += fmt::format("{}: {}\r\n", name, value);
  }
  return head + "\r\n";
}

}  // namespace

FaultProxy::FaultProxy(std::unique_ptr<HttpTransport> upstream) : upstream_(std::move(upstream)) {
  TestServerOptions options;
  options.certificate = authority_.server({"127.0.0.1"});
  server_ = std::make_unique<TestServer>(
      options,
      [this](ServerConnection& peer, const SeenRequest& request) { return serve(peer, request); });
}

FaultProxy::~FaultProxy() {
  heal();
  stop_.request_stop();
}

KubeConfig FaultProxy::config() const {
  KubeConfig config;
  config.server = server_->url();
  config.ca.value = authority_.pem();
  return config;
}

void FaultProxy::inject(Fault fault) {
  const Lock lock(mutex_);
  faults_.push_back(std::move(fault));
}

void FaultProxy::heal() {
  const Lock lock(mutex_);
  faults_.clear();
  ++releases_;
  changed_.notify_all();
}

void FaultProxy::release() {
  const Lock lock(mutex_);
  ++releases_;
  changed_.notify_all();
}

void FaultProxy::dropAll() {
  server_->dropConnections();
}

void FaultProxy::onWrite(std::function<void(int, const ProxiedRequest&)> callback) {
  const Lock lock(mutex_);
  on_write_ = std::move(callback);
}

std::vector<ProxiedRequest> FaultProxy::requests() const {
  const Lock lock(mutex_);
  return requests_;
}

int FaultProxy::writes() const {
  const Lock lock(mutex_);
  return writes_;
}

bool FaultProxy::take(const SeenRequest& request, Fault* fault) {
  const Lock lock(mutex_);
  for (auto it = faults_.begin(); it != faults_.end(); ++it) {
    if (!it->method.empty() && it->method != request.method) continue;
    if (request.target.find(it->target_part) == std::string::npos) continue;
    *fault = *it;
    if (it->times > 0 && --it->times == 0) faults_.erase(it);
    return true;
  }
  return false;
}

bool FaultProxy::serve(ServerConnection& peer, const SeenRequest& request) {
  Fault fault;
  if (!take(request, &fault)) return forward(peer, request, nullptr);
  if (fault.kind == Fault::Kind::kDropRequest) return false;
  if (fault.kind != Fault::Kind::kAnswer) return forward(peer, request, &fault);
  return peer.respond(fault.status, fault.body, fault.headers);
}

void FaultProxy::noteDone(const ProxiedRequest& request) {
  std::function<void(int, const ProxiedRequest&)> on_write;
  int count = 0;
  {
    const Lock lock(mutex_);
    requests_.push_back(request);
    if (request.method == "GET") return;
    count = ++writes_;
    on_write = on_write_;
  }
  if (on_write) on_write(count, request);
}

bool FaultProxy::forwardData(ServerConnection& peer, std::string_view data, const Fault* fault) {
  if (fault && fault->kind == Fault::Kind::kSilence) return !server_->stopping();
  if (fault && fault->kind == Fault::Kind::kHold) {
    Lock lock(mutex_);
    const int held_at = releases_;
    changed_.wait(lock, [&] { return releases_ != held_at || stop_.stop_requested(); });
  }
  return peer.chunk(data);
}

bool FaultProxy::forward(ServerConnection& peer, const SeenRequest& request, const Fault* fault) {
  const ProxiedRequest seen{request.method, request.target, request.body};
  const bool lose = fault && fault->kind == Fault::Kind::kLoseReply;
  HttpLimits limits{.deadline = std::chrono::hours(1),
                    .inactivity = std::chrono::hours(1),
                    .max_body = std::size_t{256} << 20,
                    .stop = stop_.get_token()};
  if (fault && fault->kind == Fault::Kind::kDropStream) limits.deadline = fault->after;
  const Status status = upstream_->stream(
      toUpstream(request), limits,
      [&](const HttpResponse& head) {
        noteDone(seen);
        return lose || peer.send(headOf(head));
      },
      [&](std::string_view data) { return lose || forwardData(peer, data, fault); });
  if (fault && fault->kind == Fault::Kind::kSilence) peer.waitGone();
  return status.ok() && !lose && peer.endChunks();
}

}  // namespace trainyard::control
