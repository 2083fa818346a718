#include "runtime/task/ps_task.h"

#include "base/core/failpoint.h"
#include "base/core/log.h"
#include "base/core/log_context.h"
#include "base/metrics/bucket_message.h"
#include "runtime/catalog/catalog.h"
#include "runtime/coordinator/member_core.h"
#include "runtime/files/remote_files.h"
#include "runtime/model/model.h"
#include "runtime/storage/storage.h"
#include "runtime/task/coordinator_host.h"
#include "runtime/task/declaring.h"
#include "runtime/task/memory_check.h"
#include "runtime/task/shard_server.h"

namespace trainyard::runtime {

PsTask::PsTask(const TaskOptions& options) : options_(options), membership_(options.membership) {}

StatusOr<std::unique_ptr<PsTask>> PsTask::start(const TaskOptions& options) {
  std::unique_ptr<PsTask> task(new PsTask(options));
  TY_RETURN_IF_ERROR(task->build());
  task->link_ = std::make_unique<MemberLink>(
      MemberLink::Options{.identity = options.keys.control}, *options.clock,
      [ps = task.get()] { return ps->report(); },
      [ps = task.get()](const v1::View& v) { ps->onView(v); });
  TY_RETURN_IF_ERROR(task->listen());
  return task;
}

// That of a program's own is known when worker-0's program has declared it.
StatusOr<ModelLayout> PsTask::layout() {
  const v1::Training& training = options_.job.spec().training();
  if (!isProgram(training.model())) {
    const InputShape input = impliedInput(training);
    return modelLayout(training.model(), input.shape, input.classes);
  }
  TY_ASSIGN_OR_RETURN(DeclaredModel model, declaredModel());
  return std::move(model.layout);
}

// Where others have no disk for it, worker-0 brings it here.
StatusOr<DeclaredModel> PsTask::declaredModel() {
  const std::string path = declaredModelPath(options_.checkpointDir());
  std::unique_ptr<TaskServer> meanwhile;
  if (files_ != nullptr) {
    TY_ASSIGN_OR_RETURN(meanwhile, TaskServer::start(taskServerOptions(options_), {files_.get()}));
  }
  if (!openStored(path).ok()) {
    declaring_ = reportDeclaring(options_);
    TY_INFO("waits until worker-0's program has declared its model");
  }
  return awaitDeclaredModel(path, {});
}

Status PsTask::build() {
  const v1::Training& training = options_.job.spec().training();
  TY_RETURN_IF_ERROR(makeStoredFolder(options_.checkpointDir()));
  if (hostsCoordinator(options_) && coordinatorHasDisk(options_.job)) files_ = serveFiles(options_);
  TY_ASSIGN_OR_RETURN(model_, layout());
  const GridServers grid = gridServers(options_.job, membership_);
  TY_ASSIGN_OR_RETURN(placement_,
                      place(training.placement(), model_.variables, grid.start, grid.most));
  const int index = static_cast<int>(options_.id.index());
  TY_ASSIGN_OR_RETURN(
      host_, ShardHost::make(options_, index, model_, placement_, [this] { link_->poke(); }));
  TY_RETURN_IF_ERROR(checkServerMemory(options_.job.spec(), placement_, index,
                                       static_cast<int>(host_->optimizer().slots().size())));
  TY_ASSIGN_OR_RETURN(digest_, jobDigest(options_.job));
  return absl::OkStatus();
}

Status PsTask::listen() {
  // Before the coordinator claims the checkpoints: a second start by mistake ends here.
  TY_ASSIGN_OR_RETURN(UniqueFd listener, TaskServer::listen(taskServerOptions(options_)));
  std::vector<grpc::Service*> control = {&host_->tables()};
  if (hostsCoordinator(options_)) {
    TY_ASSIGN_OR_RETURN(coordinator_,
                        startCoordinator(options_, digest_, placement_, host_->optimizer(),
                                         options_.job.spec().training().optimizer().name()));
    control.push_back(coordinator_.get());
  }
  if (files_ != nullptr) control.push_back(files_.get());
  TY_ASSIGN_OR_RETURN(server_,
                      serveShard(options_, control, host_->service(), std::move(listener)));
  TY_INFO("listening on {}:{}, {} bytes of parameters", options_.bind, server_->port(),
          host_->shard().parameterBytes());
  return absl::OkStatus();
}

PsTask::~PsTask() {
  if (link_ != nullptr) link_->stop();
  agent_.reset();
  if (coordinator_ != nullptr) coordinator_->stop();
  if (host_ != nullptr) host_->close();
  server_.reset();
  link_.reset();  // after the server, whose requests may poke it
}

void PsTask::requestEnd() {
  host_->end();
}

v1::MemberReport PsTask::report() {
  v1::MemberReport report = identifiedMemberReport(options_, digest_);
  {
    std::lock_guard lock(mutex_);
    report.set_revision(membership_.revision());
  }
  host_->withMachine([&](const ps::PsMachine& machine) { machine.fillReport(report); });
  return report;
}

void PsTask::onView(const v1::View& view) {
  if (!view.refusal().empty()) TY_WARN("refused by the coordinator: {}", view.refusal());
  host_->onView(view);
}

void PsTask::onDirective(const v1::RuntimeDirective& directive) {
  if (directive.has_membership()) {
    {
      std::lock_guard lock(mutex_);
      if (directive.membership().revision() <= membership_.revision()) return;
      membership_ = directive.membership();
    }
    const std::string address = coordinatorAddress(options_.job, directive.membership());
    if (link_ != nullptr) link_->setAddress(address);
    if (options_.files != nullptr) options_.files->setAddress(address);
    if (coordinator_ != nullptr) coordinator_->setMembership(directive.membership());
  }
  if (coordinator_ != nullptr) coordinator_->follow(directive);
}

v1::RuntimeReport PsTask::runtimeReport() {
  v1::RuntimeReport report = identifiedRuntimeReport(options_);
  const v1::ShardState state = host_->shard().state();
  {
    std::lock_guard lock(mutex_);
    report.set_revision(membership_.revision());
  }
  host_->withMachine([&](const ps::PsMachine& machine) {
    report.set_epoch(machine.view().epoch().epoch());
    const v1::Phase phase = machine.view().phase();
    report.set_phase(machine.over()                 ? "Done"
                     : phase == v1::PHASE_ACTIVE    ? "Training"
                     : phase == v1::PHASE_PREPARING ? "Restoring"
                     : phase == v1::PHASE_STOPPING  ? "Stopping"
                                                    : "Joining");
    was_active_ = was_active_ || machine.serves() || machine.over();
    report.set_ready(was_active_);
    report.set_message(machine.view().waiting_for());
    report.set_steps(machine.view().steps());
  });
  report.set_step(std::max<std::int64_t>(0, state.min_version()));
  setLogProgress(report.epoch(), report.step());
  report.set_requests(host_->service().requests());
  report.set_parameter_bytes(host_->shard().parameterBytes());
  host_->service().traffic().fill(report);
  host_->service().replicaTraffic().fill(report);
  host_->shard().fillReport(report);
  if (coordinator_ != nullptr) coordinator_->fill(report);
  return report;
}

v1::Measurements PsTask::measurements() const {
  v1::Measurements measured = identifiedMeasurements(options_);
  setBuckets(*measured.mutable_request_times(), host_->service().requestTimes());
  if (coordinator_ != nullptr) coordinator_->measure(measured);
  return measured;
}

Status PsTask::outcome() const {
  return host_->withMachine([](const ps::PsMachine& machine) -> Status {
    if (!machine.over()) return absl::CancelledError("ended before the job was over");
    if (machine.view().phase() == v1::PHASE_FAILED && !machine.view().left())
      return failureOf(machine.view());
    return absl::OkStatus();
  });
}

Status PsTask::run() {
  declaring_.reset();
  agent_ = std::make_unique<AgentLink>(
      options_.agent_target, options_.token, [this] { return runtimeReport(); },
      [this](const v1::RuntimeDirective& d) { onDirective(d); }, [this] { return measurements(); },
      options_.local_agent);
  link_->setAddress(coordinatorAddress(options_.job, membership_));
  agent_->start();
  link_->start();
  const auto over = [](const ps::PsMachine& machine) { return machine.over(); };
  while (host_->await()) {
    if (coordinator_ == nullptr && host_->withMachine(over)) break;
    if (coordinator_ != nullptr && coordinator_->finished()) break;
    host_->work();
  }
  host_->withMachine([](const ps::PsMachine& machine) {
    if (machine.view().left())
      TY_INFO("left on request, the job is at step {}", machine.view().progress());
  });
  hitFailpoint("ps.finished", host_->shard().state().min_version());
  link_->flush(std::chrono::seconds(2));  // "leaving", so that nobody waits for this server
  agent_->stop();
  return outcome();
}

}  // namespace trainyard::runtime
