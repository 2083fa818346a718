// An HTTP(S) server whose every byte a test decides.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/operator/kube/certificates.h"

namespace trainyard::control {

struct SeenRequest {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  int connection = 0;       // counted from 1
  std::string common_name;  // of the client's certificate
};

// One connection, used by its thread only.
class ServerConnection {
 public:
  virtual ~ServerConnection() = default;
  // False when the peer is gone.
  virtual bool send(std::string_view bytes) = 0;
  // Until the peer closes the connection, or the server stops.
  virtual void waitGone() = 0;
  // Bytes go to and fro between the peer and that port of 127.0.0.1 until one of them closes. Only
  // without TLS of our own.
  virtual void relayTo(int port) = 0;

  bool respond(int status, std::string_view body, std::string_view more_headers = "");
  // A response in chunks: begin, any number of chunks, end.
  bool beginChunks(int status = 200);
  bool chunk(std::string_view data);
  bool endChunks();
};

struct TestServerOptions {
  std::string address = "127.0.0.1";  // or "::1"
  // Empty: plain HTTP.
  CertificateAndKey certificate;
  std::string client_authority;  // PEM; set: clients need a certificate of it
};

// A thread for each connection. The destructor closes all connections and waits for the threads.
class TestServer {
 public:
  // After `handler` the connection goes on with its next request; false closes it.
  using Handler = std::function<bool(ServerConnection&, const SeenRequest&)>;

  TestServer(TestServerOptions options, Handler handler);
  ~TestServer();

  int port() const { return port_; }
  std::string url() const;
  // What has arrived so far.
  std::vector<SeenRequest> requests() const;
  int connections() const { return connections_; }
  // For connections that come from now on.
  void setCertificate(const CertificateAndKey& certificate);
  bool stopping() const { return stopping_; }
  // Closes those that are there.
  void dropConnections();

 private:
  class Peer;
  void acceptLoop();
  void serve(Peer& peer);

  const TestServerOptions options_;
  const Handler handler_;
  struct Tls;
  std::shared_ptr<Tls> tls_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  mutable std::mutex mutex_;
  std::vector<SeenRequest> requests_;
  std::list<std::unique_ptr<Peer>> peers_;
  std::thread accept_thread_;
};

}  // namespace trainyard::control
