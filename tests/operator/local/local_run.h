// A run directory with one recorded job and a LocalCluster of stub agents over it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "operator/local/local_cluster.h"

namespace trainyard::control {

class LocalRun {
 public:
  LocalRun();
  ~LocalRun();  // ends the cluster, removes the directory

  // Starts the cluster; `grace` and `places` as in LocalClusterOptions.
  void open(Duration grace = std::chrono::seconds(10), TaskPlaces places = {});
  void close() { cluster_.reset(); }
  LocalCluster& cluster() { return *cluster_; }
  const RunPaths& paths() const { return paths_; }
  JobKey key() const { return {"default", "stub"}; }
  v1::TrainingJob job() { return RunRecord(paths_).read().value(); }

  void command(const TaskKey& task, const std::string& command);
  int pidOf(const TaskKey& task);
  // True within some seconds, looked at every few milliseconds.
  static bool eventually(const std::function<bool()>& predicate);
  static bool lives(int pid);

 private:
  RunPaths paths_;
  std::unique_ptr<LocalCluster> cluster_;
};

}  // namespace trainyard::control
