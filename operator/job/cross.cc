// The rules of deploy/crds.yaml (x-kubernetes-validations) once more: CEL runs in the apiserver
// only.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "fmt/format.h"
#include "operator/job/internal/tables.h"
#include "operator/job/internal/validate.h"
#include "operator/job/internal/view.h"

namespace trainyard::control::internal {
namespace {

using Json = nlohmann::ordered_json;

// Exactly one of two members; the problem is put where one is missing or one is too many.
void checkEither(const View& object, std::string_view first, std::string_view second,
                 ProblemList& problems) {
  const View one = object[first];
  const View other = object[second];
  if (one.present() != other.present()) return;
  problems.add((one.present() ? other : one).path(),
               fmt::format("exactly one of {} and {} is needed, got {}", first, second,
                           one.present() ? "both" : "neither"));
}

void checkAction(const View& rule, ProblemList& problems) {
  const Names actions = {"fixedSize", "minMax", "maxBytes", "ps"};
  Names given;
  for (const std::string_view action : actions) {
    if (rule[action].present()) given.push_back(action);
  }
  if (!rule.isObject() || given.size() == 1) return;
  problems.add(rule.path(),
               fmt::format("exactly one of {} is needed, got {}", either(actions, "and"),
                           given.empty() ? "none" : either(given, "and")));
}

void checkFailureRules(const View& policy, ProblemList& problems) {
  for (const View& rule : policy["rules"].items()) {
    if (!rule.isObject() || rule["onExitCodes"].present() != rule["onPodConditions"].present())
      continue;
    problems.add(rule.path(),
                 fmt::format("exactly one of onExitCodes and onPodConditions is needed, got {}",
                             rule["onExitCodes"].present() ? "both" : "neither"));
  }
}

void checkReplicas(const View& role, ProblemList& problems) {
  const auto replicas = role["replicas"].integer();
  const auto least = role["minReplicas"].integer();
  const auto most = role["maxReplicas"].integer();
  if (replicas && most && *replicas > *most) {
    problems.add(role["replicas"].path(),
                 fmt::format("{} is above maxReplicas {}", *replicas, *most));
  }
  if (replicas && least && *replicas < *least) {
    problems.add(role["replicas"].path(),
                 fmt::format("{} is below minReplicas {}", *replicas, *least));
  }
}

void checkStrategy(const View& spec, ProblemList& problems) {
  checkBelongs(spec, "strategy", {{"ps", {"ParameterServer"}, true}}, problems);
  const View mode = spec["training"]["update"]["mode"];
  const auto chosen = mode.text();
  if (spec["strategy"].text() == "AllReduce" && chosen && *chosen != "Sync") {
    problems.add(mode.path(),
                 fmt::format("strategy AllReduce trains with mode Sync only, not {}", *chosen));
  }
  const View wire = spec["training"]["wireType"];
  if (spec["strategy"].text() == "AllReduce" && wire.present()) {
    problems.add(wire.path(),
                 "only with strategy ParameterServer; AllReduce has training.allReduce.wireType");
  }
}

void checkVolumes(const View& spec, ProblemList& problems) {
  const auto storage = spec["storage"]["mountPath"].text();
  std::set<std::string> seen;
  for (const View& volume : spec["volumes"].items()) {
    const View path = volume["mountPath"];
    const auto text = path.text();
    if (!text) continue;
    if (text == storage) {
      problems.add(path.path(), fmt::format("{} is the mountPath of spec.storage", *text));
    }
    if (!seen.insert(*text).second) {
      problems.add(path.path(), fmt::format("two volumes have the same mountPath {}", *text));
    }
  }
}

// Each becomes a volume of the pod, beside those of the job and Trainyard's own.
void checkClaimTemplates(const View& role, const View& spec, ProblemList& problems) {
  std::set<std::string> volumes, seen;
  for (const View& volume : spec["volumes"].items()) {
    if (const auto name = volume["name"].text()) volumes.insert(*name);
  }
  for (const View& claim : role["volumeClaimTemplates"].items()) {
    const View name = claim["metadata"]["name"];
    const auto text = name.text();
    if (!text) continue;
    if (text->starts_with("trainyard-")) {
      problems.add(name.path(),
                   fmt::format("{}: names of claims that begin with trainyard- are of volumes of "
                               "Trainyard's own",
                               *text));
    }
    if (volumes.contains(*text)) {
      problems.add(
          name.path(),
          fmt::format("a template of claims has the name of a volume of spec.volumes: {}", *text));
    }
    if (!seen.insert(*text).second) {
      problems.add(name.path(),
                   fmt::format("two templates of claims have the same name {}", *text));
    }
  }
}

void checkPorts(const View& network, ProblemList& problems) {
  std::set<std::int64_t> seen;
  for (const std::string_view name : {"taskPort", "agentPort", "metricsPort"}) {
    const auto port = network[name].integer();
    if (port && !seen.insert(*port).second) {
      problems.add(network[name].path(),
                   fmt::format("taskPort, agentPort and metricsPort are not three different ports: "
                               "{} is used twice",
                               *port));
    }
  }
}

// Without an order it is Shuffled.
void checkOrder(const View& data, ProblemList& problems) {
  const std::vector<Belongs> table = {{"blockSamples", {"Blocks"}, true},
                                      {"drift", {"Sequential"}}};
  checkBelongs(data, "order", table, problems);
  if (data["order"].present()) return;
  for (const Belongs& row : table) {
    const View member = data[row.member];
    if (member.present())
      problems.add(member.path(), fmt::format("only with order {}", row.choices.front()));
  }
}

void checkData(const View& data, ProblemList& problems) {
  checkBelongs(data, "format",
               {{"images", {"idx"}, true},
                {"labels", {"idx"}, true},
                {"evalImages", {"idx"}},
                {"evalLabels", {"idx"}},
                {"shape", {"synthetic"}, true},
                {"classes", {"synthetic"}, true},
                {"samples", {"synthetic", "synthetic_ctr"}, true},
                {"evalSamples", {"synthetic", "synthetic_ctr"}},
                {"files", {"csv", "criteo", "tfrecord"}, true},
                {"evalFiles", {"csv", "criteo", "tfrecord"}},
                {"scratch", {"csv", "criteo", "tfrecord"}},
                {"cache", {"idx", "csv", "criteo", "tfrecord"}},
                {"columns", {"csv", "tfrecord", "synthetic_ctr"}, true},
                {"drift", {"synthetic_ctr"}}},
               problems);
  checkOrder(data, problems);
  const View images = data["evalImages"];
  const View labels = data["evalLabels"];
  if (images.present() != labels.present()) {
    const View& missing = images.present() ? labels : images;
    problems.add(missing.path(), "missing: evalImages and evalLabels go together");
  }
}

void checkOptimizer(const View& optimizer, ProblemList& problems) {
  checkBelongs(optimizer, "name",
               {{"momentum", {"Momentum", "RMSProp"}},
                {"nesterov", {"Momentum"}},
                {"rho", {"Adadelta", "RMSProp"}},
                {"epsilon", {"Adadelta", "Adam", "RMSProp"}},
                {"beta1", {"Adam"}},
                {"beta2", {"Adam"}},
                {"initialAccumulator", {"Adagrad", "Ftrl"}},
                {"centered", {"RMSProp"}},
                {"l1", {"Ftrl"}},
                {"l2", {"Ftrl"}},
                {"l2Shrinkage", {"Ftrl"}}},
               problems);
  if (optimizer["name"].text() == "Ftrl" && optimizer["weightDecay"].present())
    problems.add(optimizer["weightDecay"].path(), "not with optimizer Ftrl, which has l2");
}

void checkPlacement(const View& placement, const View& ps, ProblemList& problems) {
  checkBelongs(
      placement, "strategy",
      {{"fixedSize", {"FixedSize"}}, {"minMax", {"MinMax"}}, {"maxBytes", {"MaxBytes"}, true}},
      problems);
  const auto count = ps["replicas"].integer();
  for (const View& rule : placement["rules"].items()) {
    checkAction(rule, problems);
    const auto index = rule["ps"].integer();
    if (!index) continue;
    if (!ps.present()) {
      problems.add(rule["ps"].path(), "there are no parameter servers (spec.ps)");
    } else if (count && *index >= *count) {
      problems.add(rule["ps"].path(),
                   fmt::format("{} is not below ps.replicas {}", *index, *count));
    }
  }
}

void checkUpdate(const View& update, const View& worker, ProblemList& problems) {
  checkBelongs(update, "mode",
               {{"backupWorkers", {"Sync"}},
                {"aggregate", {"Async"}},
                {"maxDelay", {"BoundedDelay"}, true},
                {"stop", {"BoundedDelay"}}},
               problems);
  const auto backup = update["backupWorkers"].integer();
  const auto workers = worker["replicas"].integer();
  if (backup && workers && *backup >= *workers) {
    problems.add(update["backupWorkers"].path(),
                 fmt::format("{} is not below worker.replicas {}", *backup, *workers));
  }
}

// What needs one common version of the weights in every step.
void checkMode(const View& training, ProblemList& problems) {
  const View update = training["update"];
  const std::string mode = update["mode"].text().value_or("Sync");
  const bool sync = mode != "Async" && mode != "BoundedDelay";  // an unknown one is named already
  const bool whole = sync && update["backupWorkers"].integer().value_or(0) == 0;
  const View deterministic = training["deterministic"];
  if (!whole && deterministic.boolean().value_or(false))
    problems.add(deterministic.path(), "only with mode Sync without backupWorkers");
}

// A program that brings the model brings the data too.
void checkHasData(const View& training, ProblemList& problems) {
  const auto model = training["model"]["name"].text();
  const View data = training["data"];
  if (!model || data.present() != (*model == "program")) return;
  problems.add(data.path(), data.present() ? "not with model program, which has its own"
                                           : "missing: every model but program needs it");
}

void checkTraining(const View& spec, ProblemList& problems) {
  const View training = spec["training"];
  if (!training.isObject()) return;
  checkEither(training, "batchSize", "globalBatchSize", problems);
  checkEither(training, "steps", "passes", problems);
  const auto batch = training["globalBatchSize"].integer();
  const auto workers = spec["worker"]["replicas"].integer();
  const std::int64_t processes = spec["worker"]["processesPerPod"].integer().value_or(1);
  if (batch && workers && *batch < *workers * processes) {
    problems.add(
        training["globalBatchSize"].path(),
        fmt::format("{} is below worker.replicas {}{}", *batch, *workers,
                    processes == 1 ? "" : fmt::format(" x processesPerPod {}", processes)));
  }
  checkBelongs(training["model"], "name",
               {{"hidden", {"mlp", "wide_and_deep", "dlrm"}},
                {"bottomHidden", {"dlrm"}},
                {"path", {"torchscript"}, true},
                {"dropout", {"mnist_cnn", "mlp", "vgg19"}},
                {"simulatedStepSeconds", {"mnist_cnn", "mlp", "vgg19"}}},
               problems);
  checkHasData(training, problems);
  checkData(training["data"], problems);
  checkColumns(training["data"], problems);
  checkOptimizer(training["optimizer"], problems);
  for (const View& table : training["tables"].items()) checkOptimizer(table["optimizer"], problems);
  checkUpdate(training["update"], spec["worker"], problems);
  checkPlacement(training["placement"], spec["ps"], problems);
  checkMode(training, problems);
}

// Only what our runtime sends is ours to encrypt.
void checkEncryption(const View& spec, ProblemList& problems) {
  const View encryption = spec["network"]["encryption"];
  if (encryption.text().value_or("None") == "None") return;
  if (!spec["training"].present()) problems.add(encryption.path(), "only with training");
}

void checkStorage(const View& spec, ProblemList& problems) {
  const View storage = spec["storage"];
  const View access = storage["access"];
  const View store = storage["s3"];
  if (access.text() == "Coordinator" && !spec["training"].present())
    problems.add(access.path(), "Coordinator: only with training");
  if (access.text() == "Coordinator" && store.present())
    problems.add(access.path(), "Coordinator is for a volume, not for s3");
  if (store["caKey"].present() && !store["secretName"].present())
    problems.add(store.path(), "caKey names a key of secretName");
}

// Of programs that are told of all tasks. The names of 3000 fit the ConfigMap that tells them,
// however long those of the job and its namespace are, and the addresses of so many one variable of
// a program's environment (128 KiB, TF_CONFIG). Ours need no such: addresses alone do for all tasks
// there can be.
void checkTaskCount(const View& spec, ProblemList& problems) {
  constexpr std::int64_t kMost = 3000;
  const View training = spec["training"], workers = spec["worker"]["replicas"];
  const bool ours = training.present() && training["model"]["name"].text() != "program";
  const std::int64_t tasks =
      workers.integer().value_or(1) + spec["ps"]["replicas"].integer().value_or(0);
  if (ours || tasks <= kMost) return;
  problems.add(workers.path(),
               fmt::format("more than {} tasks, each of which is told the names of all in one "
                           "object",
                           kMost));
}

}  // namespace

void validateAcross(const Json& job, ProblemList& problems) {
  const View spec = View(&job, "")["spec"];
  if (!spec.isObject()) return;
  checkStrategy(spec, problems);
  checkVolumes(spec, problems);
  checkClaimTemplates(spec["ps"], spec, problems);
  checkClaimTemplates(spec["worker"], spec, problems);
  checkPorts(spec["network"], problems);
  checkEncryption(spec, problems);
  checkStorage(spec, problems);
  checkReplicas(spec["ps"], problems);
  checkReplicas(spec["worker"], problems);
  checkFailureRules(spec["runPolicy"]["podFailurePolicy"], problems);
  checkTraining(spec, problems);
  checkTables(spec, problems);
  checkTaskCount(spec, problems);
}

}  // namespace trainyard::control::internal
