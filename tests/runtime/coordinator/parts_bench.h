// What a single part of the coordinator sees: a membership whose members have said something, an
// epoch that they compute in, its steps.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "runtime/coordinator/epochs.h"
#include "runtime/coordinator/job_steps.h"
#include "runtime/coordinator/membership.h"
#include "runtime/coordinator/outbox.h"
#include "tests/runtime/coordinator/bench.h"

namespace trainyard::runtime {

struct PartsBench {
  explicit PartsBench(int ps = 1, int workers = 2,
                      const std::function<void(CoordinatorConfig&)>& change = {})
      : config(Bench::with(change)),
        reports(Bench(ps, workers).reports),
        now(std::chrono::hours(1)),
        membership(config, members(ps, workers), now),
        epochs(config, 0, now),
        steps(config, membership, std::nullopt) {
    say();
  }
  v1::MemberReport& ps(std::uint32_t i = 0) { return reports[{v1::ROLE_PS, i}]; }
  v1::MemberReport& worker(std::uint32_t i = 0) { return reports[{v1::ROLE_WORKER, i}]; }
  v1::ShardState& shard(std::uint32_t i = 0) { return *ps(i).mutable_shard(); }

  // All reports as they stand are heard.
  void say() {
    for (const auto& [key, report] : reports)
      membership.accept({key.first, key.second}, report, now);
  }
  // Everybody computes in the next epoch, from this step on.
  void begin(std::int64_t first_step = 0) {
    v1::EpochInfo epoch = all(epochs.number(), first_step);
    membership.enlist(epoch);
    steps.startEpoch(epoch, membership, false, nullptr);
    epochs.prepare(epoch, now, out);
    for (auto& [key, report] : reports) {
      report.set_prepared_epoch(epoch.epoch());
      report.mutable_worker()->set_epoch(epoch.epoch());
    }
    say();
    epochs.begin(now, out);
    out.take();
  }
  // An epoch of all.
  v1::EpochInfo all(std::int64_t number, std::int64_t first_step = 0) const {
    v1::EpochInfo epoch;
    epoch.set_epoch(number);
    epoch.set_first_step(first_step);
    for (const auto& [key, report] : reports) {
      v1::EpochMember* member = epoch.add_members();
      *member->mutable_id() = report.id();
      *member->mutable_incarnation() = report.incarnation();
      if (key.first == v1::ROLE_WORKER) member->set_rank(key.second);
    }
    return epoch;
  }
  // What was said since the last time, of one kind.
  template <typename Action>
  std::vector<Action> said() {
    std::vector<Action> found;
    for (CoordinatorAction& action : out.take()) {
      if (Action* one = std::get_if<Action>(&action)) found.push_back(std::move(*one));
    }
    return found;
  }

  CoordinatorConfig config;
  std::map<Bench::Key, v1::MemberReport> reports;
  TimePoint now;
  Membership membership;
  Epochs epochs;
  JobSteps steps;
  Outbox out;
};

}  // namespace trainyard::runtime
