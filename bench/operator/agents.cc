// The agents of many jobs in one process, each at its pod's address with its job's certificate, for
// a fleet that nobody computes in. Beside operator_fleet.py.
//
// Reads lines: "pod UID ROLE INDEX CREATED ADDRESS" where a pod has begun to run; "freeze" and
// "thaw": whether jobs get on; "reset" begins to count again. After each "count" it prints what was
// asked since.
#include <atomic>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/core/clock.h"
#include "base/process/files.h"
#include "base/rpc/channel.h"
#include "base/rpc/secure_channel.h"
#include "base/rpc/token.h"
#include "fmt/format.h"
#include "trainyard/v1/agent.grpc.pb.h"

namespace trainyard {
namespace {

// What all agents have in common.
class Fleet {
 public:
  // Jobs get on by one step each second.
  std::int64_t step() const {
    const std::lock_guard lock(mutex_);
    return stepLocked();
  }
  void freeze(bool frozen) {
    const std::lock_guard lock(mutex_);
    step_ = stepLocked();
    since_ = systemClock().now();
    frozen_ = frozen;
  }
  std::atomic<std::int64_t> calls{0};

 private:
  std::int64_t stepLocked() const {
    const double more = frozen_ ? 0 : toSeconds(systemClock().now() - since_);
    return step_ + static_cast<std::int64_t>(more);
  }
  mutable std::mutex mutex_;
  std::int64_t step_ = 0;  // at `since_`
  TimePoint since_ = systemClock().now();
  bool frozen_ = false;
};

struct Job;

// The agent of one task. Its address tells who is meant: each has a server of its own.
class Agent final : public v1::Agent::CallbackService {
 public:
  Agent(Fleet& fleet, Job& job, const v1::TaskId& id, std::uint32_t created)
      : fleet_(fleet), job_(job), id_(id), created_(created) {}

  grpc::ServerUnaryReactor* GetTask(grpc::CallbackServerContext* context, const v1::GetTaskRequest*,
                                    v1::TaskState* reply) override;
  grpc::ServerUnaryReactor* PushMembership(grpc::CallbackServerContext* context,
                                           const v1::PushMembershipRequest* request,
                                           v1::PushMembershipReply* reply) override;
  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context, const v1::StopJobRequest*,
                                    v1::StopJobReply*) override {
    return finish(context);
  }
  void listen(const std::string& address, const std::shared_ptr<grpc::ServerCredentials>& as);
  v1::HeardTask heard() const;
  bool asked() const { return asked_; }
  void reset() { asked_ = false; }
  std::int64_t revision() const { return revision_; }

 private:
  grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* context);

  Fleet& fleet_;
  Job& job_;
  const v1::TaskId id_;
  const std::uint32_t created_;
  std::atomic<std::int64_t> revision_{0};
  std::atomic<bool> asked_{false};
  std::unique_ptr<grpc::Server> server_;
};

struct Job {
  JobKeys keys;
  std::shared_ptr<grpc::ServerCredentials> credentials;
  std::mutex mutex;
  std::map<std::pair<int, std::uint32_t>, std::unique_ptr<Agent>> agents;
  std::vector<std::unique_ptr<Agent>> former;
};

grpc::ServerUnaryReactor* Agent::finish(grpc::CallbackServerContext* context) {
  ++fleet_.calls;
  asked_ = true;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(checkToken(*context, job_.keys.token));
  return reactor;
}

v1::HeardTask Agent::heard() const {
  v1::HeardTask heard;
  *heard.mutable_id() = id_;
  heard.set_created(created_);
  heard.set_start(1);
  heard.set_revision(revision_);
  return heard;
}

grpc::ServerUnaryReactor* Agent::GetTask(grpc::CallbackServerContext* context,
                                         const v1::GetTaskRequest*, v1::TaskState* reply) {
  *reply->mutable_id() = id_;
  reply->set_created(created_);
  reply->set_start(1);
  reply->set_child("Running");
  reply->set_revision(revision_);
  v1::RuntimeReport& report = *reply->mutable_report();
  report.set_ready(revision_ > 0);
  report.set_phase("Training");
  const std::int64_t step = fleet_.step();
  report.set_requests(static_cast<std::uint64_t>(step));
  if (id_.role() != v1::ROLE_PS || id_.index() != 0 || revision_ == 0) return finish(context);
  v1::JobProgress& job = *report.mutable_job();
  job.set_step(step);
  job.set_steps(1'000'000'000);
  job.set_epoch(1);
  job.set_has_loss(true);
  job.set_loss(1.0 / static_cast<double>(step + 1));
  const std::lock_guard lock(job_.mutex);
  for (const auto& [key, agent] : job_.agents) {
    if (agent->revision() > 0) *report.add_heard() = agent->heard();
  }
  return finish(context);
}

grpc::ServerUnaryReactor* Agent::PushMembership(grpc::CallbackServerContext* context,
                                                const v1::PushMembershipRequest* request,
                                                v1::PushMembershipReply* reply) {
  revision_ = request->membership().revision();
  reply->set_revision(revision_);
  return finish(context);
}

void Agent::listen(const std::string& address, const std::shared_ptr<grpc::ServerCredentials>& as) {
  grpc::ServerBuilder builder;
  applyServerDefaults(builder);
  int bound = 0;
  builder.AddListeningPort(address, as, &bound);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (bound == 0) std::cerr << "cannot listen at " << address << std::endl;
}

class Agents {
 public:
  Agents(std::string root, int port) : root_(std::move(root)), port_(port) {}

  void follow(std::istream& commands) {
    for (std::string line; std::getline(commands, line);) {
      std::istringstream words(line);
      std::string word;
      words >> word;
      if (word == "pod") add(words);
      if (word == "freeze" || word == "thaw") fleet_.freeze(word == "freeze");
      if (word == "reset") reset();
      if (word == "count") count();
    }
  }

 private:
  void add(std::istringstream& words) {
    std::string uid, role, address;
    std::uint32_t index = 0, created = 0;
    words >> uid >> role >> index >> created >> address;
    std::unique_ptr<Job>& job = jobs_[uid];
    if (job == nullptr) {
      job = std::make_unique<Job>();
      job->keys = deriveJobKeys(root_, uid);
      job->credentials = secureServer(job->keys.task);
    }
    v1::TaskId id;
    id.set_role(role == "ps" ? v1::ROLE_PS : v1::ROLE_WORKER);
    id.set_index(index);
    auto agent = std::make_unique<Agent>(fleet_, *job, id, created);
    agent->listen(fmt::format("{}:{}", address, port_), job->credentials);
    const std::lock_guard lock(job->mutex);
    std::unique_ptr<Agent>& place = job->agents[{id.role(), index}];
    if (place != nullptr) job->former.push_back(std::move(place));
    place = std::move(agent);
  }
  void reset() {
    fleet_.calls = 0;
    for (const auto& [uid, job] : jobs_) {
      for (const auto& [key, agent] : job->agents) agent->reset();
    }
  }
  void count() {
    std::size_t tasks = 0, asked = 0, coordinators = 0;
    for (const auto& [uid, job] : jobs_) {
      for (const auto& [key, agent] : job->agents) {
        ++tasks;
        if (!agent->asked()) continue;
        ++asked;
        coordinators += key == std::pair<int, std::uint32_t>{v1::ROLE_PS, 0};
      }
    }
    std::cout << fmt::format(
                     R"({{"jobs": {}, "tasks": {}, "asked": {}, "coordinators": {}, "calls": {}}})",
                     jobs_.size(), tasks, asked, coordinators, fleet_.calls.load())
              << std::endl;
  }

  const std::string root_;
  const int port_;
  Fleet fleet_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
};

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  CLI::App app{"The agents of many jobs"};
  std::string root_file;
  int port = 2230;
  app.add_option("--root-secret", root_file, "File of the operator's root secret")->required();
  app.add_option("--port", port, "Where agents listen")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto root = trainyard::readFile(root_file, 4096);
  if (!root.ok()) {
    std::cerr << root.status().ToString() << std::endl;
    return 1;
  }
  trainyard::Agents agents(*root, port);
  agents.follow(std::cin);
  return 0;
}
