// The small HTTP server behind /metrics, /healthz and /readyz.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/core/status.h"

namespace trainyard {

struct HttpReply {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};
// Called from the server's threads, several at a time. One that waits has its thread, of three: it
// must end by itself, and before the server.
using HttpHandler = std::function<HttpReply()>;

// Serves GET (and HEAD) of a fixed set of paths, anything else is 404. A path may be there once
// more with a parameter, "/readyz?wait", for requests that have it. One request per connection,
// three at a time. Runs from start() to the destructor.
class HttpServer {
 public:
  // Listens at `address` (an IPv4 or IPv6 address of this machine) and `port`, 0: any free one.
  // UNAVAILABLE "<address>:<port>: ..." when that is not possible, e.g. because the port is taken.
  static StatusOr<std::unique_ptr<HttpServer>> start(const std::string& address, int port,
                                                     std::map<std::string, HttpHandler> routes);
  ~HttpServer();

  // The port it listens on.
  int port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;

 public:
  // For start(): nobody else can name a State.
  explicit HttpServer(std::unique_ptr<State> state);
};

}  // namespace trainyard
