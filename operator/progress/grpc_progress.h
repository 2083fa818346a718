// ProgressSource over the agents' gRPC service.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "operator/cluster/agent_directory.h"
#include "operator/progress/progress_source.h"

namespace trainyard::control {

struct GrpcProgressOptions {
  Duration interval = std::chrono::seconds(1);  // between two rounds
  Duration timeout = std::chrono::seconds(2);   // of one call
};

// Asks all agents of all followed jobs, round after round, on one thread; within a round the calls
// of a job run side by side, so a hung agent costs one timeout and not one per peer. An agent whose
// membership is older than the wish gets it pushed; the coordinator's agent is told to stop as long
// as that is wished and its outcome is open.
//
// start() once, stop() (or the destructor) ends the thread within one timeout. `directory` outlives
// it.
class GrpcProgress : public ProgressSource {
 public:
  GrpcProgress(AgentDirectory& directory, GrpcProgressOptions options);
  ~GrpcProgress() override;

  void start();
  void stop();

  void watch(std::function<void(const JobKey&)> changed) override;
  JobReport newest(const JobKey& key) const override;
  void follow(const JobKey& key, const std::string& uid, const JobWish& wish) override;
  void forget(const JobKey& key) override;

  // One round over one job; what the thread does again and again. Blocks up to twice the timeout.
  // Returns the first failure to learn whom to ask; an agent that does not answer is no failure.
  Status pollOnce(const JobKey& key);

 private:
  struct Job {
    std::string uid;
    JobWish wish;
    JobReport report;
  };
  struct Peer;
  struct Answer;

  void loop();
  std::vector<Answer> askAll(const std::vector<AgentEndpoint>& agents, const std::string& token,
                             const std::optional<AgentTls>& tls);
  void tellAll(const JobKey& key, const std::vector<Answer>& answers, const JobWish& wish,
               const std::string& token);
  // True when the report changed.
  bool take(const JobKey& key, const std::string& uid, const std::vector<Answer>& answers);
  std::shared_ptr<Peer> peerAt(const std::string& address, const std::optional<AgentTls>& tls);
  void dropPeersBut(const std::vector<AgentEndpoint>& agents, const JobKey& key);

  AgentDirectory& directory_;
  const GrpcProgressOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool hurry_ = false;  // a wish changed: do not wait for the interval
  std::map<JobKey, Job> jobs_;
  std::function<void(const JobKey&)> changed_;
  std::thread thread_;

  std::mutex poll_mutex_;                               // one round at a time; guards what follows
  std::map<std::string, std::shared_ptr<Peer>> peers_;  // by address
  std::map<JobKey, std::vector<std::string>> addresses_;  // of the last round
};

}  // namespace trainyard::control
