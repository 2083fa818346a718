// Stands between a client and an apiserver and misbehaves when told to.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "operator/kube/config.h"
#include "operator/kube/http.h"
#include "tests/operator/kube/certificates.h"
#include "tests/operator/kube/test_server.h"

namespace trainyard::control {

struct Fault {
  enum class Kind {
    kAnswer,       // the apiserver is not asked; the answer is `status` with `headers` and `body`
    kDropRequest,  // the apiserver is not asked; the connection is closed
    kLoseReply,    // it is asked; then the connection is closed
    kDropStream,   // a watch is closed after `after`
    kSilence,      // a watch begins, then nothing comes and nothing is closed
    kHold,         // what a watch says comes only after release()
  };
  Kind kind = Kind::kAnswer;
  // Which requests; "": any.
  std::string method;
  std::string target_part;
  int times = 1;  // how often; -1: until heal()
  int status = 503;
  std::string headers;  // "Retry-After: 1\r\n"
  std::string body = R"({"kind":"Status","code":503,"reason":"ServiceUnavailable"})";
  Duration after = std::chrono::milliseconds(100);
};

// A request that reached the apiserver.
struct ProxiedRequest {
  std::string method;
  std::string target;
  std::string body;
};

// Serves HTTPS on 127.0.0.1, with whose credentials the caller likes: upstream goes what `upstream`
// sends. Lifecycle: construct, inject, destruct; the destructor ends all connections. Thread-safe.
class FaultProxy {
 public:
  explicit FaultProxy(std::unique_ptr<HttpTransport> upstream);
  ~FaultProxy();

  // How to reach it; namespace and the like are the defaults.
  KubeConfig config() const;

  // The first fault that fits a request counts.
  void inject(Fault fault);
  // Forgets all faults, and lets go what is held.
  void heal();
  void release();
  // Closes all connections there are.
  void dropAll();
  // Called after the apiserver has carried a write out, before its answer is handed on; `count` is
  // how many there were. Before any request.
  void onWrite(std::function<void(int count, const ProxiedRequest&)> callback);

  std::vector<ProxiedRequest> requests() const;
  // Requests but GET that reached the apiserver.
  int writes() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  bool serve(ServerConnection& peer, const SeenRequest& request);
  bool forward(ServerConnection& peer, const SeenRequest& request, const Fault* fault);
  bool forwardData(ServerConnection& peer, std::string_view data, const Fault* fault);
  void noteDone(const ProxiedRequest& request);
  bool take(const SeenRequest& request, Fault* fault);

  const std::unique_ptr<HttpTransport> upstream_;
  TestAuthority authority_{"fault proxy"};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Fault> faults_;
  std::vector<ProxiedRequest> requests_;
  std::function<void(int, const ProxiedRequest&)> on_write_;
  int writes_ = 0;
  int releases_ = 0;
  std::stop_source stop_;
  std::unique_ptr<TestServer> server_;  // first to end
};

}  // namespace trainyard::control
