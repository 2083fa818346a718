// ProgressSource over the agents' gRPC service.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/core/allowance.h"
#include "operator/cluster/agent_directory.h"
#include "operator/progress/internal/news.h"
#include "operator/progress/internal/pace.h"
#include "operator/progress/internal/poll_round.h"
#include "operator/progress/internal/poller.h"
#include "operator/progress/progress_source.h"

namespace trainyard::control {

struct GrpcProgressOptions {
  Duration interval = std::chrono::seconds(1);  // from the beginning of a job's round to the next
  Duration timeout = std::chrono::seconds(2);   // of one call
  // Calls under way at which no further round begins. A round has as many as its job has agents.
  std::size_t calls = 512;
  // Tasks of index 0, among them the coordinator, are asked in every round, others in every so
  // manieth one, unless there is something to tell them.
  int others_every = 1;
  // The coordinator's word on other tasks (RuntimeReport.heard) is taken for theirs: they are asked
  // only while it does not tell of them, or until they have the newest membership.
  bool ask_coordinator_only = false;
  // Its last word holds for so long, should it be silent.
  Duration word_holds = std::chrono::seconds(30);
  // The connection to one of whom it tells, and whom nobody has asked for so long, is given up: it
  // takes some 180 KB.
  Duration idle = std::chrono::seconds(2);
  // One that has not answered yet has been asked in vain for so long: now others are asked, too.
  Duration coordinator_late = std::chrono::seconds(10);
  // Jobs of which nothing is expected are asked so often a second, all together, if not each
  // interval.
  double calm_rounds_per_second = 250;
  double rounds_per_second = 500;  // of the others
  // How far a job has got is told of at most so often, and of all jobs so often a second. What may
  // have to be acted on is told at once.
  Duration progress_every = std::chrono::seconds(10);
  double progress_per_second = 18;
  // An agent that does not answer for so long is reported as unreachable.
  Duration unreachable_after = std::chrono::seconds(30);
  // Asked before agents are told anything: false when another operator may be the leader.
  std::function<bool()> may_tell = [] { return true; };
};

// Asks the agents of all followed jobs, round after round, on one thread; the calls of a round and
// the rounds of all jobs run side by side, so that a hung agent delays nobody but the next round of
// its own job. An agent whose membership is older than the wish gets it pushed; the coordinator's
// agent is told to stop as long as that is wished and its outcome is open. Agents that stay silent
// are asked less and less often, but for those of a job that is to stop.
//
// start() once, stop() (or the destructor) ends the threads soon: calls under way are given up.
// `directory` outlives it.
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

  // Agents of all jobs that are reported as unreachable.
  std::size_t unreachable() const;

  // One round over one job; what the thread does again and again. Blocks up to twice the timeout.
  // Returns the first failure to learn whom to ask; an agent that does not answer is no failure.
  Status pollOnce(const JobKey& key);

 private:
  struct Job;
  // An agent that a newer membership did not reach.
  struct Unreached {
    JobKey key;
    AgentEndpoint agent;
    std::int64_t revision = 0;
  };

  void loop();
  void beginDue();
  void onOver(PollCall* call);
  // Takes the round on when none of its calls is under way; the last part ends it.
  void proceed(std::unique_ptr<PollRound> round);
  void endRound(const PollRound::Job& of);
  // The next part of a round whose calls are over; false when there is none.
  bool goOn(PollRound& round, grpc::CompletionQueue& queue);
  StatusOr<std::unique_ptr<PollRound>> beginRound(const PollRound::Job& of,
                                                  grpc::CompletionQueue& queue);
  std::vector<PollRound::Answer> peersLocked(const JobKey& key, Job& job,
                                             const std::vector<AgentEndpoint>& agents,
                                             const std::optional<AgentTls>& tls);
  void followLocked(Job& job, const std::vector<AgentEndpoint>& agents);
  // Whether the coordinator's word will do for another agent's in this round.
  bool spokenForLocked(const Job& job, const std::shared_ptr<AgentPeer>& peer);
  // False: there is no connection, and none may be made now.
  bool connectLocked(const Job& job, const AgentEndpoint& agent,
                     const std::shared_ptr<AgentPeer>& peer, const std::optional<AgentTls>& tls);
  bool mayConnectLocked(const AgentEndpoint& agent, const AgentPeer& peer, TimePoint now);
  // Who has connected by now, or will not. When to look again; nothing: nobody connects.
  std::optional<TimePoint> sweepLocked();
  // What their silence or answers mean for the rounds to come, and for the report.
  News judgeLocked(Job& job, PollRound& round);
  News noteSilenceLocked(Job& job);
  // An agent that is silent for so many intervals gets its membership in another way, once.
  void helpSilentLocked(const JobKey& key, const Job& job, const AgentEndpoint& agent,
                        AgentPeer& peer, int intervals);
  News takeLocked(Job& job, const std::vector<PollRound::Answer>& answers);
  News takeHeardLocked(Job& job, const v1::TaskState& coordinator);
  Duration progressEveryLocked() const;
  // True: the report is to be told of now.
  bool noteLocked(Job& job, News news);
  void scheduleLocked(const JobKey& key, Job& job, TimePoint due);
  void unscheduleLocked(const JobKey& key, Job& job);
  bool lacksLocked(const Unreached& unreached) const;
  void helpUnreached();

  AgentDirectory& directory_;
  const GrpcProgressOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable news_;  // for helpUnreached()
  bool stopping_ = false;
  std::map<JobKey, std::unique_ptr<Job>> jobs_;
  std::set<std::pair<TimePoint, JobKey>> due_;  // of jobs without a round under way
  std::uint64_t rounds_begun_ = 0;
  Allowance progress_allowed_;
  // A new connection with TLS takes milliseconds of computing on both sides. Beyond what processors
  // can do in a call's time none would succeed; and whom nobody can ask yet must not keep those
  // waiting that have a coordinator.
  Allowance first_connects_{100, 100};  // to tasks of index 0
  Allowance connects_{100, 100};
  const std::shared_ptr<std::atomic<int>> others_open_ = std::make_shared<std::atomic<int>>(0);
  // Attempts to connect that are under way, also where their call is over, or their job: gRPC 1.51
  // leaves a connection open for good when its channel is destroyed between its handshake and the
  // server's first frame (grpc/grpc#32071), and of a busy agent it comes in time for the next call.
  std::set<std::shared_ptr<AgentPeer>> connecting_;
  TimePoint swept_at_{};
  std::deque<Unreached> unreached_;
  std::function<void(const JobKey&)> changed_;
  Poller poller_;
  // The thread's alone:
  std::map<PollRound*, std::unique_ptr<PollRound>> rounds_;
  std::size_t calls_ = 0;  // of all rounds
  std::thread thread_;
  // Writing may take long and must not hold up asking.
  std::thread helper_;
};

}  // namespace trainyard::control
