// Members and the coordinator over sockets.
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/process/poll.h"
#include "base/rpc/task_server.h"
#include "base/security/job_keys.h"
#include "gmock/gmock.h"
#include "runtime/coordinator/member_link.h"
#include "runtime/coordinator/service.h"
#include "tests/base/process/temp_dir.h"
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const TlsIdentity& identityOf(const std::string& token) {
  static std::map<std::string, TlsIdentity> identities;
  const auto [at, added] = identities.try_emplace(token);
  if (added) at->second = deriveRuntimeKeys(token).control;
  return at->second;
}

constexpr char kToken[] = "the-token";

// ps-0's process as far as it coordinates: one server, one worker.
class Home {
 public:
  Home(std::uint32_t start, int port, const std::string& checkpoints)
      : service(options(start, checkpoints),
                Coordinator(Bench::with([&](CoordinatorConfig& c) {
                              c.self = incarnation(1, start);
                              c.heartbeat = milliseconds(100);
                              c.dead_after = seconds(60);
                            }),
                            members(1, 1), std::nullopt, systemClock().now()),
                systemClock()) {
    auto started = TaskServer::start(
        {.what = "ps-0", .port = static_cast<std::uint16_t>(port), .identity = identityOf(kToken)},
        {&service});
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) {
      server_ = std::move(*started);
      this->port = server_->port();
    }
  }
  ~Home() {
    service.stop();
    server_.reset();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port); }

  int port = 0;
  std::atomic<int> finishes{0};
  std::atomic<int> evaluations{0};
  std::atomic<int> displaced{0};
  CoordinatorService service;

 private:
  CoordinatorService::Options options(std::uint32_t start, const std::string& checkpoints) {
    CoordinatorService::Options o;
    o.checkpoint_dir = checkpoints;
    o.complete = [](Manifest& m, const v1::DataFingerprint& data) {
      m.model_digest = std::string(64, 'a');
      m.data_sha256 = data.sha256();
      m.data_samples = data.samples();
      m.optimizer = "SGD";
      m.variables = {{"w", {2}, "F32"}};
      m.max_ps = 1;
    };
    o.claim = std::make_shared<Claim>(checkpoints, Writer{"uid", "ps-0", 1, start});
    EXPECT_EQ(o.claim->hold(), absl::OkStatus());
    o.claim_every = milliseconds(100);
    o.displaced = [this](const Status&) { ++displaced; };
    o.evaluated = [this](const v1::Evaluation&) { ++evaluations; };
    o.finish = [this](const FinishAction&) {
      ++finishes;
      return absl::OkStatus();
    };
    return o;
  }
  std::unique_ptr<TaskServer> server_;
};

// A member whose report a test writes and which heeds views as Bench's members do.
class Member {
 public:
  Member(v1::Role role, const std::string& address, const std::string& token = kToken)
      : bench_(1, 1),
        report_(bench_.reports[{role, 0}]),
        link(
            {.identity = identityOf(token),
             .heartbeat = seconds(1),
             .retry_delay = milliseconds(20)},
            systemClock(),
            [this] {
              std::lock_guard lock(mutex_);
              ++reports_;
              return report_;
            },
            [this](const v1::View& view) {
              std::lock_guard lock(mutex_);
              const bool news = view.sequence() != view_.sequence() ||
                                view.coordinator().start() != view_.coordinator().start();
              view_ = view;
              bench_.heed(report_, view);
              if (news) link.poke();
            }) {
    link.setAddress(address);
    link.start();
  }
  void change(const std::function<void(v1::MemberReport&)>& how) {
    {
      std::lock_guard lock(mutex_);
      how(report_);
    }
    link.poke();
  }
  v1::View view() const {
    std::lock_guard lock(mutex_);
    return view_;
  }
  int reports() const {
    std::lock_guard lock(mutex_);
    return reports_;
  }

 private:
  mutable std::mutex mutex_;
  Bench bench_;
  v1::MemberReport& report_;
  v1::View view_;
  int reports_ = 0;

 public:
  MemberLink link;  // first to go
};

class CoordinatorRpcTest : public testing::Test {
 protected:
  void start(std::uint32_t start, int port = 0) {
    home_ = std::make_unique<Home>(start, port, dir_.path().native());
  }
  bool active(std::int64_t epoch) {
    return eventually(
        [&] { return home_->service.phase() == v1::PHASE_ACTIVE && progress().epoch() == epoch; });
  }
  v1::JobProgress progress() const {
    v1::RuntimeReport report;
    home_->service.fill(report);
    return report.job();
  }
  // Its 100 steps are over, and its last checkpoint's file is written.
  void takeAllSteps(Member& ps, Member& worker) {
    ASSERT_TRUE(eventually([&] { return worker.view().phase() == v1::PHASE_ACTIVE; }));
    const std::int64_t epoch = worker.view().epoch().epoch();
    worker.change([&](v1::MemberReport& r) {
      r.mutable_worker()->set_version(100);
      v1::EvaluationPart* part = r.mutable_worker()->add_evaluations();
      part->set_epoch(epoch);
      part->set_version(100);
      part->set_samples(100);
      part->set_hits(90);
    });
    ps.change([&](v1::MemberReport& r) {
      Bench::setShard(r, 100);
      v1::ShardFile* file = r.add_written();
      file->set_epoch(epoch);
      file->set_version(100);
      file->set_name("ps-0.step-100.e" + std::to_string(epoch) + ".i1-1.safetensors");
      file->set_size(8);
      file->set_sha256(std::string(64, 'b'));
    });
  }
  TempDir dir_;
  std::unique_ptr<Home> home_;
};

TEST_F(CoordinatorRpcTest, MembersComeTogetherAndHeartbeatsGoOn) {
  start(1);
  Member ps(v1::ROLE_PS, home_->address());
  Member worker(v1::ROLE_WORKER, home_->address());
  ASSERT_TRUE(active(1));
  ASSERT_TRUE(eventually([&] { return worker.view().phase() == v1::PHASE_ACTIVE; }));
  const int before = worker.reports();
  EXPECT_TRUE(eventually([&] { return worker.reports() >= before + 3; }));  // nothing happens
  EXPECT_EQ(worker.link.problem(), "");
}

TEST_F(CoordinatorRpcTest, ACoordinatorThatStartsAgainOnItsPortIsFoundAgain) {
  start(1);
  const int port = home_->port;
  Member ps(v1::ROLE_PS, home_->address());
  Member worker(v1::ROLE_WORKER, home_->address());
  ASSERT_TRUE(active(1));
  ASSERT_TRUE(eventually([&] { return worker.view().phase() == v1::PHASE_ACTIVE; }));
  home_.reset();
  EXPECT_TRUE(eventually([&] { return !worker.link.problem().empty(); }));
  EXPECT_THAT(worker.link.problem(), HasSubstr("coordinator at 127.0.0.1:"));
  start(2, port);
  ASSERT_TRUE(active(2));  // above what the members have seen
  EXPECT_TRUE(eventually([&] { return worker.view().coordinator().start() == 2; }));
  EXPECT_TRUE(eventually([&] { return worker.link.problem().empty(); }));
}

TEST_F(CoordinatorRpcTest, AMemberFollowsTheCoordinatorsAddress) {
  start(1);
  Member ps(v1::ROLE_PS, "127.0.0.1:1");
  EXPECT_TRUE(eventually([&] { return !ps.link.problem().empty(); }));
  ps.link.setAddress(home_->address());
  EXPECT_TRUE(eventually([&] { return ps.view().coordinator().start() == 1; }));
}

TEST_F(CoordinatorRpcTest, FlushWaitsForAReportMadeAfterwards) {
  start(1);
  Member ps(v1::ROLE_PS, home_->address());
  const int before = ps.reports();
  EXPECT_TRUE(ps.link.flush(seconds(20)));
  EXPECT_GT(ps.reports(), before);
  Member nobody(v1::ROLE_WORKER, "127.0.0.1:1");
  EXPECT_FALSE(nobody.link.flush(milliseconds(50)));
}

// As where gigabytes are prepared for an epoch.
TEST_F(CoordinatorRpcTest, WhoTakesLongOverAViewIsNotSilent) {
  start(1);
  std::atomic<int> reports{0};
  std::atomic<int> views{0};
  std::atomic<bool> over{false};
  Bench bench(1, 1);
  MemberLink link(
      {.identity = identityOf(kToken), .heartbeat = milliseconds(20)}, systemClock(),
      [&] {
        ++reports;
        return bench.reports[{v1::ROLE_PS, 0}];
      },
      [&](const v1::View&) {
        ++views;
        EXPECT_TRUE(eventually([&] { return over.load(); }));
      });
  link.setAddress(home_->address());
  link.start();
  EXPECT_TRUE(eventually([&] { return views == 1; }));
  const int before = reports;
  EXPECT_TRUE(eventually([&] { return reports >= before + 5; }));
  EXPECT_EQ(views, 1) << "one at a time";
  over = true;
  EXPECT_TRUE(eventually([&] { return views > 5; })) << "those that came meanwhile, each";
  EXPECT_TRUE(link.flush(seconds(20)));
}

TEST_F(CoordinatorRpcTest, AWrongTokenIsNotHeard) {
  start(1);
  Member stranger(v1::ROLE_WORKER, home_->address(), "another-token");
  EXPECT_TRUE(eventually([&] { return !stranger.link.problem().empty(); }));
  EXPECT_EQ(stranger.view().sequence(), 0u);
  EXPECT_TRUE(eventually([&] { return !stranger.view().refusal().empty(); }));
  EXPECT_THAT(stranger.view().refusal(),
              HasSubstr("cannot prove to be of this job: it has another token"));
  EXPECT_THAT(progress().waiting_for(), HasSubstr("worker-0"));
}

TEST_F(CoordinatorRpcTest, CommitsWithTheDataOfThoseWhoTakePartAndEnds) {
  start(1);
  {
    // Whoever is refused does not say what the job trains on.
    Member foreign(v1::ROLE_WORKER, home_->address());
    foreign.change([](v1::MemberReport& r) {
      r.set_job_digest("other");
      r.mutable_data()->set_sha256("another data set");
    });
    ASSERT_TRUE(eventually([&] { return !foreign.view().refusal().empty(); }));
  }
  Member ps(v1::ROLE_PS, home_->address());
  Member worker(v1::ROLE_WORKER, home_->address());
  worker.change([](v1::MemberReport& r) {
    *r.mutable_incarnation() = incarnation(1, 2);
    r.mutable_data()->set_sha256(std::string(64, 'd'));
  });
  takeAllSteps(ps, worker);
  ASSERT_TRUE(eventually([&] { return home_->service.phase() == v1::PHASE_DONE; }));
  EXPECT_EQ(home_->finishes, 1);
  EXPECT_EQ(home_->evaluations, 1);
  const auto manifests = listManifests(dir_.path().native(), nullptr);
  ASSERT_EQ(manifests.size(), 1u);
  EXPECT_EQ(manifests[0].step, 100);
  EXPECT_EQ(manifests[0].data_sha256, std::string(64, 'd'));
  EXPECT_EQ(manifests[0].data_samples, 1000);
  EXPECT_TRUE(eventually([&] { return home_->service.finished(); }));
}

// Its files are no use to anybody then, and what stands there is the other one's.
TEST_F(CoordinatorRpcTest, CommitsNothingOnceAnotherHasBegunInItsPlace) {
  start(1);
  Member ps(v1::ROLE_PS, home_->address());
  Member worker(v1::ROLE_WORKER, home_->address());
  ASSERT_TRUE(eventually([&] { return worker.view().phase() == v1::PHASE_ACTIVE; }));
  EXPECT_EQ(home_->displaced, 0);
  Claim next(dir_.path().native(), {"uid", "ps-0", 2, 1});
  ASSERT_EQ(next.hold(), absl::OkStatus());
  EXPECT_TRUE(eventually([&] { return home_->displaced > 0; })) << "it looks by itself";
  takeAllSteps(ps, worker);
  const int before = home_->displaced;
  EXPECT_TRUE(eventually([&] { return home_->displaced > before + 3; }));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::ElementsAre("writer-2.json"));
  EXPECT_EQ(home_->finishes, 0);
}

TEST_F(CoordinatorRpcTest, AStopRequestReachesEverybody) {
  start(1);
  Member ps(v1::ROLE_PS, home_->address());
  Member worker(v1::ROLE_WORKER, home_->address());
  ASSERT_TRUE(active(1));
  home_->service.requestStop();
  EXPECT_TRUE(eventually([&] { return worker.view().phase() == v1::PHASE_STOPPING; }));
}

TEST_F(CoordinatorRpcTest, AStopWhoseTimeIsOverWaitsForNobody) {
  start(1);
  Member ps(v1::ROLE_PS, home_->address());
  Member worker(v1::ROLE_WORKER, home_->address());
  ASSERT_TRUE(active(1));
  v1::RuntimeDirective directive;
  directive.set_stop_job(true);
  directive.set_stop_seconds(0);
  home_->service.follow(directive);
  EXPECT_TRUE(eventually([&] { return home_->service.phase() == v1::PHASE_STOPPED; }));
}

}  // namespace
}  // namespace trainyard::runtime
