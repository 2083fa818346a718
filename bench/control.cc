// What a call of control costs over mutual TLS, at a TaskServer, and unencrypted, at a server that
// has nothing else.
//
//   trainyard-bench-control --calls 2000 --connections 50
//
// Prints one JSON object: the derivation of a job's keys, the first call of a new connection, and
// the round trip of a report, each the median. The two kinds take turns.
#include <algorithm>
#include <iostream>

#include "CLI/CLI.hpp"
#include "base/core/check.h"
#include "base/core/exit_code.h"
#include "base/rpc/grpc_process.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/task_server.h"
#include "fmt/format.h"
#include "runtime/coordinator/service.h"

namespace trainyard {
namespace {

// Answers a report with a view of a small job, at once.
class Coordinator final : public v1::Coordinator::CallbackService {
 public:
  Coordinator() {
    view_.set_sequence(1);
    for (std::uint32_t i = 0; i < 4; ++i)
      view_.mutable_epoch()->add_members()->mutable_id()->set_index(i);
  }
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* context, const v1::MemberReport*,
                                 v1::View* view) override {
    *view = view_;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  v1::View view_;
};

using Open = std::function<std::shared_ptr<grpc::Channel>()>;

template <typename F>
double milliseconds(F what) {
  const TimePoint begin = systemClock().now();
  what();
  return toSeconds(systemClock().now() - begin) * 1e3;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

void sync(v1::Coordinator::Stub& stub) {
  v1::MemberReport report;
  report.set_job_uid("00000000-0000-0000-0000-000000000000");
  report.set_job_digest(std::string(64, 'd'));
  grpc::ClientContext context;
  setDeadline(context, std::chrono::seconds(30));
  v1::View view;
  const grpc::Status status = stub.Sync(&context, report, &view);
  TY_CHECK(status.ok(), "a server of this process answers");
}

struct Figures {
  std::vector<double> first;
  std::vector<double> round_trip;
};

void measure(const Open& open, int calls, Figures& figures) {
  std::unique_ptr<v1::Coordinator::Stub> stub;
  figures.first.push_back(milliseconds([&] {
    stub = v1::Coordinator::NewStub(open());
    sync(*stub);
  }));
  for (int i = 0; i < calls; ++i) figures.round_trip.push_back(milliseconds([&] { sync(*stub); }));
}

std::string json(const Figures& figures) {
  return fmt::format(R"({{"first_call_ms": {:.3f}, "round_trip_us": {:.1f}}})",
                     median(figures.first), median(figures.round_trip) * 1e3);
}

int fail(const Status& status) {
  std::cerr << status << "\n";
  return kExitFailure;
}

StatusOr<std::unique_ptr<grpc::Server>> startPlain(grpc::Service& service, int& port) {
  grpc::ServerBuilder builder;
  applyServerDefaults(builder);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  return startServer(builder, "bench", "127.0.0.1:0", port);
}

int run(int calls, int connections) {
  std::vector<double> derive;
  RuntimeKeys keys;
  for (int i = 0; i < 20; ++i)
    derive.push_back(milliseconds([&] { keys = deriveRuntimeKeys("a token"); }));
  Coordinator tls, plain;
  auto server = TaskServer::start({.what = "bench", .identity = keys.control}, {&tls});
  if (!server.ok()) return fail(server.status());
  const std::string address = fmt::format("127.0.0.1:{}", (*server)->port());
  int plain_port = 0;
  auto plain_server = startPlain(plain, plain_port);
  if (!plain_server.ok()) return fail(plain_server.status());
  const std::string plain_address = fmt::format("127.0.0.1:{}", plain_port);
  ChannelOptions own;
  own.own_connection = true;
  Figures with, without;
  for (int i = 0; i < connections; ++i) {
    measure([&] { return openSecureChannel(address, keys.control, kRuntimeServerName, own); },
            calls / connections, with);
    measure([&] { return openChannel(plain_address, own); }, calls / connections, without);
  }
  std::cout << fmt::format("{{\"derive_ms\": {:.3f}, \"tls\": {}, \"plain\": {}}}\n",
                           median(derive), json(with), json(without));
  return kExitOk;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  CLI::App app("Control over mutual TLS.", "trainyard-bench-control");
  int calls = 5000;
  int connections = 50;
  app.add_option("--calls", calls, "Round trips, of each kind")->check(CLI::PositiveNumber);
  app.add_option("--connections", connections, "Of each kind")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  trainyard::prepareGrpc();
  return trainyard::run(calls, connections);
}
