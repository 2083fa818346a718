// Requests to an object store over the network.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "base/core/status.h"
#include "base/http/proxy.h"
#include "runtime/storage/s3/signature.h"

namespace trainyard::runtime::s3 {

struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // by lower-case name
  std::string body;
};

// Thread-safe; requests run side by side.
class Http {
 public:
  virtual ~Http() = default;
  // Blocks until the answer is there, of whatever status. UNAVAILABLE: there was none, or not all
  // of it; the request may have been carried out nevertheless. RESOURCE_EXHAUSTED: its body has
  // more than `max_body` bytes.
  virtual StatusOr<Response> send(const Request& request, std::size_t max_body) = 0;
};

// By cpp-httplib, over connections that are kept. `ca_file` and `proxies`: those of S3Config. Gives
// a server up that is silent for 20 s.
std::unique_ptr<Http> makeHttp(const std::string& ca_file, const ProxyRules& proxies);

}  // namespace trainyard::runtime::s3
