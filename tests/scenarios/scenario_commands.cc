// The commands of scenarios.
#include "base/core/rfc3339.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "tests/scenarios/scenario.h"

namespace trainyard::control {

namespace {

StatusOr<TaskKey> taskOf(const Command& command) {
  const auto key = command.words.empty() ? std::nullopt : parseTaskKey(command.words[0]);
  if (!key) return absl::InvalidArgumentError(fmt::format("{} needs a task", command.name));
  return *key;
}

StatusOr<Duration> durationOf(const Command& command) {
  if (command.words.empty()) return absl::InvalidArgumentError("advance needs a duration");
  const std::string& word = command.words[0];
  for (const auto& [unit, seconds] :
       std::map<std::string, double>{{"ms", 0.001}, {"s", 1}, {"m", 60}}) {
    if (!word.ends_with(unit)) continue;
    const auto n = parseNumber<std::int64_t>(word.substr(0, word.size() - unit.size()));
    if (n) return fromSeconds(static_cast<double>(*n) * seconds);
  }
  return absl::InvalidArgumentError(fmt::format("not a duration: {}", word));
}

StatusOr<Status> statusOf(const Command& command) {
  static const std::map<std::string, absl::StatusCode> kCodes = {
      {"UNAVAILABLE", absl::StatusCode::kUnavailable},
      {"DEADLINE_EXCEEDED", absl::StatusCode::kDeadlineExceeded},
      {"INVALID_ARGUMENT", absl::StatusCode::kInvalidArgument},
      {"FAILED_PRECONDITION", absl::StatusCode::kFailedPrecondition},
      {"RESOURCE_EXHAUSTED", absl::StatusCode::kResourceExhausted}};
  const auto it = kCodes.find(command.text("code"));
  if (it == kCodes.end()) return absl::InvalidArgumentError("no such code");
  return Status(it->second, "made to fail");
}

// "FailJob In 42; Ignore NotIn 1,2; Count DisruptionTarget".
void addRules(const std::string& text, v1::PodFailurePolicy* policy) {
  for (const std::string_view one : split(text, ';')) {
    const std::vector<std::string_view> words = split(trim(one), ' ');
    v1::PodFailureRule* rule = policy->add_rules();
    rule->set_action(std::string(words[0]));
    if (words.size() == 2) {
      v1::OnPodCondition* condition = rule->add_on_pod_conditions();
      condition->set_type(std::string(words[1]));
      condition->set_status("True");
      continue;
    }
    rule->mutable_on_exit_codes()->set_operator_(std::string(words[1]));
    for (const std::string_view code : split(words[2], ','))
      rule->mutable_on_exit_codes()->add_values(parseNumber<int>(code).value_or(0));
  }
}

}  // namespace

Status Scenario::addJob(const Command& c) {
  v1::TrainingJob job = fakeJob(key_.name, static_cast<int>(c.number("ps", 1)),
                                static_cast<int>(c.number("workers", 2)));
  v1::JobSpec* spec = job.mutable_spec();
  v1::RunPolicy* policy = spec->mutable_run_policy();
  policy->set_success_policy(c.text("success", "Chief"));
  policy->set_clean_pod_policy(c.text("clean", "Running"));
  policy->set_backoff_limit(static_cast<int>(c.number("backoff", 6)));
  if (c.options.contains("deadline")) policy->set_active_deadline_seconds(c.number("deadline", 0));
  if (c.options.contains("ttl")) {
    policy->set_ttl_seconds_after_finished(static_cast<int>(c.number("ttl", 0)));
  }
  if (c.options.contains("stop-seconds"))
    policy->set_stop_seconds(static_cast<int>(c.number("stop-seconds", 60)));
  if (c.options.contains("min"))
    spec->mutable_worker()->set_min_replicas(static_cast<int>(c.number("min", 1)));
  if (c.options.contains("ps-min"))
    spec->mutable_ps()->set_min_replicas(static_cast<int>(c.number("ps-min", 1)));
  if (c.options.contains("claims")) {
    spec->mutable_worker()->add_volume_claim_templates()->mutable_metadata()->set_name(
        c.text("claims"));
    spec->mutable_worker()->mutable_persistent_volume_claim_retention_policy()->set_when_scaled(
        c.text("when-scaled", "Retain"));
  }
  if (c.options.contains("replacement")) policy->set_pod_replacement(c.text("replacement"));
  if (c.options.contains("rules")) addRules(c.text("rules"), policy->mutable_pod_failure_policy());
  if (c.options.contains("managed")) policy->set_managed_by(c.text("managed"));
  policy->set_suspend(c.flag("suspend", false));
  if (c.options.contains("steps")) spec->mutable_training()->set_steps(c.number("steps", 1));
  if (c.options.contains("model"))
    spec->mutable_training()->mutable_model()->set_name(c.text("model"));
  if (c.flag("foreign", false)) spec->clear_training();
  spec->set_strategy(c.text("strategy", "ParameterServer"));
  spec->mutable_ps()->set_restart_policy(c.text("ps-restart", "ExitCode"));
  spec->mutable_worker()->set_restart_policy(c.text("worker-restart", "ExitCode"));
  if (c.options.contains("uid")) job.mutable_metadata()->set_uid(c.text("uid"));
  cluster_.addJob(job);
  if (c.options.contains("queue")) cluster_.setQueue(key_, c.text("queue"));
  return absl::OkStatus();
}

Status Scenario::edit(const Command& c) {
  cluster_.editSpec(key_, [&c](v1::JobSpec* spec) {
    v1::RunPolicy* policy = spec->mutable_run_policy();
    if (c.options.contains("suspend")) policy->set_suspend(c.flag("suspend", false));
    if (c.options.contains("backoff")) {
      policy->set_backoff_limit(static_cast<int>(c.number("backoff", 6)));
    }
    if (c.options.contains("clean")) policy->set_clean_pod_policy(c.text("clean"));
    if (c.options.contains("replacement")) policy->set_pod_replacement(c.text("replacement"));
    if (c.options.contains("workers")) {
      spec->mutable_worker()->set_replicas(static_cast<int>(c.number("workers", 1)));
    }
    if (c.options.contains("steps")) {
      spec->mutable_training()->set_steps(c.number("steps", 1));
    }
    if (c.options.contains("ps")) {
      spec->mutable_ps()->set_replicas(static_cast<int>(c.number("ps", 1)));
    }
  });
  return absl::OkStatus();
}

Status Scenario::say(const Command& c) {
  v1::JobProgress progress;
  progress.set_step(c.number("step", 0));
  progress.set_steps(c.number("steps", 1000));
  progress.set_examples_per_second(static_cast<double>(c.number("rate", 2500)));
  progress.set_epoch(c.number("epoch", 1));
  progress.set_lost_steps(c.number("lost", 0));
  progress.set_outcome(c.text("outcome"));
  progress.set_failure(c.text("failure"));
  if (c.options.contains("loss")) {
    progress.set_has_loss(true);
    progress.set_loss(static_cast<double>(c.number("loss", 0)) / 1000);  // in thousandths
  }
  if (c.options.contains("checkpoint")) {
    progress.set_has_checkpoint(true);
    progress.set_checkpoint_step(c.number("checkpoint", 0));
    progress.set_checkpoint_unix_ms(clock_.unixMillis());
  }
  progress_.say(key_, static_cast<std::uint32_t>(c.number("created", 1)), progress, clock_.now());
  return absl::OkStatus();
}

void Scenario::addJobCommands() {
  handlers_["job"] = [this](const Command& c) { return addJob(c); };
  handlers_["set"] = [this](const Command& c) { return edit(c); };
  handlers_["progress"] = [this](const Command& c) { return say(c); };
  handlers_["reconcile"] = [this](const Command& c) {
    runDue();
    if (!c.words.empty() && c.words[0] == "quiet") out_.clear();
    return absl::OkStatus();
  };
  handlers_["advance"] = [this](const Command& c) -> Status {
    TY_ASSIGN_OR_RETURN(const Duration by, durationOf(c));
    advance(by);
    return absl::OkStatus();
  };
  handlers_["life"] = [this](const Command& c) {
    cluster_.setLife({.address_at_create = c.flag("address", true),
                      .ready_at_create = c.flag("ready", false),
                      .slow_delete = c.flag("slow-delete", false),
                      .held = c.flag("held", false)});
    return absl::OkStatus();
  };
  handlers_["status"] = [this](const Command&) {
    out_ += describeStatus();
    return absl::OkStatus();
  };
  handlers_["counts"] = [this](const Command&) {
    const ReconcileCounts counts = controller_->counts();
    out_ += fmt::format("conflict {}, passing {}, permanent {}; {} writes\n", counts.conflict,
                        counts.retry, counts.permanent, cluster_.writes());
    return absl::OkStatus();
  };
  handlers_["claims"] = [this](const Command&) {
    out_ += fmt::format("claims: {}\n", join(cluster_.volumeClaims(key_), ", "));
    return absl::OkStatus();
  };
  handlers_["wish"] = [this](const Command&) {
    const auto wish = progress_.wishOf(key_);
    out_ += !wish ? "not followed\n"
                  : fmt::format("membership {}, stop {}\n",
                                wish->membership ? wish->membership->revision() : 0,
                                wish->stop_by.has_value());
    return absl::OkStatus();
  };
}

void Scenario::addTaskCommands() {
  using Act = std::function<void(const TaskKey&, const Command&)>;
  const auto add = [this](const std::string& name, const Act& act) {
    handlers_[name] = [this, act](const Command& c) -> Status {
      TY_ASSIGN_OR_RETURN(const TaskKey task, taskOf(c));
      const auto observed = cluster_.observe(key_);
      if (!observed.ok()) return observed.status();
      for (const TaskObservation& seen : observed->tasks) {
        if (seen.key != task) continue;
        act(task, c);
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError(fmt::format("{} is not there", toString(task)));
    };
  };
  add("ready", [this](const TaskKey& t, const Command&) { cluster_.setReady(key_, t); });
  const Handler ready_one = handlers_["ready"];
  handlers_["ready"] = [this, ready_one](const Command& c) -> Status {
    if (c.words.empty() || c.words[0] != "all") return ready_one(c);
    const auto observed = cluster_.observe(key_);
    if (!observed.ok()) return observed.status();
    for (const TaskObservation& task : observed->tasks) {
      if (!task.exit && !task.terminating) cluster_.setReady(key_, task.key);
    }
    return absl::OkStatus();
  };
  add("unready", [this](const TaskKey& t, const Command&) { cluster_.setReady(key_, t, false); });
  add("address", [this](const TaskKey& t, const Command&) { cluster_.setAddress(key_, t); });
  add("exit", [this](const TaskKey& t, const Command& c) {
    cluster_.exitTask(key_, t, static_cast<int>(c.number("code", 0)), c.text("cause"),
                      clock_.unixMillis());
  });
  add("kill", [this](const TaskKey& t, const Command& c) {
    cluster_.killTask(key_, t, static_cast<int>(c.number("signal", 9)));
  });
  add("disrupt", [this](const TaskKey& t, const Command& c) {
    cluster_.disruptTask(key_, t, c.text("cause", "evicted"));
  });
  add("waits", [this](const TaskKey& t, const Command& c) {
    cluster_.setWaiting(key_, t, {c.text("reason"), c.text("message")});
  });
  add("vanish", [this](const TaskKey& t, const Command&) { cluster_.vanishTask(key_, t); });
  add("delete", [this](const TaskKey& t, const Command& c) {
    const bool due = c.options.contains("due");
    cluster_.beginDelete(key_, t, due ? clock_.unixMillis() + 1000 * c.number("due", 0) : 0);
  });
  add("evict", [this](const TaskKey& t, const Command&) { cluster_.evict(key_, t); });
  add("gone", [this](const TaskKey& t, const Command&) { cluster_.finishDelete(key_, t); });
  add("in-place", [this](const TaskKey& t, const Command& c) {
    cluster_.setRestarts(key_, t, static_cast<std::uint32_t>(c.number("restarts", 1)));
  });
  add("unreachable", [this](const TaskKey& t, const Command& c) {
    std::optional<TaskWait> why;
    if (!c.text("reason").empty()) why = TaskWait{c.text("reason"), c.text("message")};
    const auto created = static_cast<std::uint32_t>(c.number("created", 1));
    progress_.setUnreachable(key_, t, created, why);
  });
  add("linger", [this](const TaskKey& t, const Command&) { cluster_.setLingers(key_, t); });
  add("cost", [this](const TaskKey& t, const Command& c) {
    cluster_.setDeletionCost(key_, t, static_cast<std::int32_t>(c.number("cost", 0)));
  });
}

void Scenario::addFaultCommands() {
  handlers_["fail"] = [this](const Command& c) -> Status {
    const auto call = c.words.empty() ? std::nullopt : parseFakeCall(c.words[0]);
    if (!call) return absl::InvalidArgumentError("fail needs a call");
    TY_ASSIGN_OR_RETURN(const Status status, statusOf(c));
    cluster_.failNext(*call, status, static_cast<int>(c.number("times", 1)),
                      c.flag("applied", false));
    return absl::OkStatus();
  };
  const auto wait = [](const Command& c) -> std::optional<TaskWait> {
    if (c.text("reason").empty()) return std::nullopt;
    return TaskWait{c.text("reason"), c.text("message")};
  };
  handlers_["obstacle"] = [this, wait](const Command& c) {
    cluster_.setObstacle(key_, wait(c));
    return absl::OkStatus();
  };
  handlers_["storage"] = [this, wait](const Command& c) {
    cluster_.setPassingStorage(key_, wait(c));
    return absl::OkStatus();
  };
  handlers_["refusal"] = [this, wait](const Command& c) {
    cluster_.setRefusal(key_, wait(c));
    return absl::OkStatus();
  };
  handlers_["quota"] = [this](const Command& c) -> Status {
    const std::string what = c.words.empty() ? "" : c.words[0];
    if (what == "granted") {
      cluster_.grantQuota(key_, static_cast<int>(c.number("workers", 2)));
    } else if (what == "withdrawn") {
      cluster_.withdrawQuota(key_, c.text("message"));
    } else if (what == "waits") {
      cluster_.explainQuota(key_, c.text("message"));
    } else {
      return absl::InvalidArgumentError("quota is granted, withdrawn or waits");
    }
    return absl::OkStatus();
  };
  handlers_["images"] = [this](const Command& c) {
    v1::Images images;
    images.set_agent(c.text("agent"));
    images.set_runtime(c.text("runtime"));
    cluster_.setImages(key_, images);
    return absl::OkStatus();
  };
  handlers_["die"] = [this](const Command& c) {
    cluster_.dieAfterWrites(static_cast<int>(c.number("after", 0)));
    return absl::OkStatus();
  };
  handlers_["restart-operator"] = [this](const Command&) {
    cluster_.revive();
    startOperator();
    return absl::OkStatus();
  };
  handlers_["annotate"] = [this](const Command& c) -> Status {
    if (c.words.size() != 2) return absl::InvalidArgumentError("annotate needs a name and a value");
    cluster_.annotate(key_, c.words[0], c.words[1]);
    return absl::OkStatus();
  };
  handlers_["touch"] = [this](const Command&) {
    cluster_.touch(key_);
    return absl::OkStatus();
  };
  handlers_["remove-job"] = [this](const Command&) {
    cluster_.removeJob(key_);
    return absl::OkStatus();
  };
  handlers_["delete-job"] = [this](const Command&) {
    cluster_.markDeleted(key_, formatRfc3339(clock_.unixMillis()));
    return absl::OkStatus();
  };
}

}  // namespace trainyard::control
