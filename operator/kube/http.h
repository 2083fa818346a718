// HTTP towards an apiserver, as little of it as a client of Kubernetes needs. The one who uses this
// knows nothing of connections; who implements it knows nothing of Kubernetes. Implementations:
// operator/kube/http_transport.h, and fakes of tests.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"

namespace trainyard::control {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method = "GET";
  std::string target;   // path and query, percent-encoded: "/api/v1/pods?limit=500"
  HttpHeaders headers;  // without Host, Content-Length and Authorization
  std::string body;
};

struct HttpResponse {
  int status = 0;
  HttpHeaders headers;
  std::string body;  // empty in what stream() hands over
  // The first value of a header, whatever the case of its name; empty when there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpLimits {
  // From the call to its end. A stream that is meant to last has one too.
  Duration deadline = std::chrono::seconds(30);
  // Without a byte from the server, connecting included. It also finds connections whose other end
  // has vanished without a word.
  Duration inactivity = std::chrono::seconds(30);
  // More than this in a body is an error: RESOURCE_EXHAUSTED.
  std::size_t max_body = std::size_t{256} << 20;
  // Ends the call from another thread: CANCELLED, within milliseconds at any moment.
  std::stop_token stop;
};

// Any HTTP status is a successful call. The errors, none of them with text of the server:
//   DEADLINE_EXCEEDED  one of the limits
//   CANCELLED          HttpLimits::stop
//   UNAVAILABLE        no connection, the connection was lost, the server's certificate is not
//                      signed by the given CA or for another name
//   RESOURCE_EXHAUSTED the body is larger than allowed
//   INVALID_ARGUMENT   certificates or keys that cannot be read
//   UNAUTHENTICATED    the program that says who we are fails (operator/kube/exec_user.h)
// maybeHappened() tells whether the server may have carried the request out nevertheless.
//
// Thread-safe; calls run side by side. An object outlives its calls.
class HttpTransport {
 public:
  virtual ~HttpTransport() = default;

  // Blocks until the whole response is there.
  virtual StatusOr<HttpResponse> call(const HttpRequest& request, const HttpLimits& limits) = 0;

  // Blocks until the response ends: OK when the server ended it properly. `on_head` comes first;
  // false ends the call as OK. Then `on_data` with pieces of the body as they arrive, cut anywhere;
  // false ends the call as OK. Both are called on the calling thread. The server is held back
  // while on_data works. HttpLimits::max_body does not count here.
  virtual Status stream(const HttpRequest& request, const HttpLimits& limits,
                        const std::function<bool(const HttpResponse&)>& on_head,
                        const std::function<bool(std::string_view)>& on_data) = 0;
};

// Marks a failure: the request was sent whole, so it may have been carried out.
Status markMaybeHappened(Status status);
// Whether a failed write may have been carried out all the same. Precondition: !status.ok().
bool maybeHappened(const Status& status);

}  // namespace trainyard::control
