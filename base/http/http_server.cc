#include "base/http/http_server.h"

#include <sys/socket.h>

#include <future>
#include <thread>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "httplib.h"

namespace trainyard {
namespace {

constexpr std::size_t kThreads = 3;
constexpr std::size_t kMaxRequestBytes = 64 * 1024;
constexpr time_t kClientSeconds = 5;  // a client that stalls longer loses its connection

// The library's default is SO_REUSEPORT, with which a second server on the port starts as well and
// gets half of the requests.
void reuseAddressOnly(socket_t fd) {
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

// What is served at one path: without a parameter, and with one.
struct Route {
  HttpHandler plain;
  std::map<std::string, HttpHandler> with;

  HttpReply answer(const httplib::Request& request) const {
    for (const auto& [parameter, handler] : with) {
      if (request.has_param(parameter.c_str())) return handler();
    }
    return plain ? plain() : HttpReply{.code = 404, .body = ""};
  }
};

std::map<std::string, Route> byPath(std::map<std::string, HttpHandler> handlers) {
  std::map<std::string, Route> routes;
  for (auto& [place, handler] : handlers) {
    const auto [path, parameter] = splitFirst(place, '?');
    Route& route = routes[std::string(path)];
    (parameter.empty() ? route.plain : route.with[std::string(parameter)]) = std::move(handler);
  }
  return routes;
}

}  // namespace

struct HttpServer::State {
  httplib::Server server;
  std::promise<void> running;
  std::thread thread;
  int port = 0;
};

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  state_->server.stop();
  state_->thread.join();
}

int HttpServer::port() const {
  return state_->port;
}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int port,
                                                        std::map<std::string, HttpHandler> routes) {
  auto state = std::make_unique<State>();
  httplib::Server& server = state->server;
  server.set_socket_options(reuseAddressOnly);
  server.set_keep_alive_max_count(1);
  server.set_read_timeout(kClientSeconds);
  server.set_write_timeout(kClientSeconds);
  server.set_payload_max_length(kMaxRequestBytes);
  for (auto& [path, route] : byPath(std::move(routes))) {
    server.Get(path,
               [route = std::move(route)](const httplib::Request& req, httplib::Response& res) {
                 const HttpReply reply = route.answer(req);
                 res.status = reply.code;
                 res.set_content(reply.body, reply.content_type);
               });
  }
  if (port == 0) {
    state->port = server.bind_to_any_port(address);
  } else {
    state->port = server.bind_to_port(address, port) ? port : -1;
  }
  if (state->port <= 0) {
    return absl::UnavailableError(fmt::format(
        "{}:{}: cannot listen: the port is taken or the address is not one of this machine",
        address, port));
  }
  // Called once the server accepts; stop() before that would be lost.
  server.new_task_queue = [&running = state->running] {
    running.set_value();
    return std::make_unique<httplib::ThreadPool>(kThreads).release();
  };
  std::future<void> running = state->running.get_future();
  state->thread = std::thread([&server] { server.listen_after_bind(); });
  running.wait();
  return std::make_unique<HttpServer>(std::move(state));
}

}  // namespace trainyard
