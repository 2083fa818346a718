#include "base/http/http_get.h"

#include "fmt/format.h"
#include "httplib.h"

namespace trainyard {

StatusOr<std::string> httpGet(const std::string& address, const std::string& path,
                              Duration timeout) {
  httplib::Client client("http://" + address);
  client.set_connection_timeout(timeout);
  client.set_read_timeout(timeout);
  const httplib::Result reply = client.Get(path);
  if (!reply) {
    return absl::UnavailableError(
        fmt::format("http://{}{}: {}", address, path, httplib::to_string(reply.error())));
  }
  if (reply->status != 200)
    return absl::UnavailableError(fmt::format("http://{}{}: {}", address, path, reply->status));
  return reply->body;
}

}  // namespace trainyard
