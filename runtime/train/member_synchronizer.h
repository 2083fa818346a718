// A Synchronizer as the process of a worker sees it: a member of a job with a coordinator.
#pragma once

#include "runtime/train/synchronizer.h"
#include "trainyard/v1/agent.pb.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/measurements.pb.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime {

// These are called from any thread.
class MemberSynchronizer : public Synchronizer {
 public:
  // The coordinator's newest word.
  virtual void onView(const v1::View& view) = 0;
  // Adds what the worker knows to a report to the coordinator.
  virtual void fillReport(v1::MemberReport& report) const = 0;
  // Where the others are.
  virtual void setMembership(const v1::Membership& membership) = 0;
  // Adds bytes by peer to a report to the agent, and what is looked up in which table.
  virtual void fillTraffic(v1::RuntimeReport& report) const = 0;
  // Adds what only this way of putting gradients together can measure.
  virtual void measure(v1::Measurements&) const {}
};

}  // namespace trainyard::runtime
