// A part of the tables in mode Sync. Step s turns version s into s + 1 when all ranks that have
// samples in it have brought their gradients, also those that have none for this part: an empty
// request is what says so. A request brings gradients of step s and asks for rows of version s + 1,
// and is answered then. Whoever has been answered by all parts for step s brings gradients of s +
// 1; so a part that sees the first of them knows that all parts have reached s + 1, and forgets
// what it kept of version s. Until then both can be read, and at any moment all parts are at v or v
// + 1 for one v, which is readable everywhere: what an epoch starts from (as with chunks, see
// runtime/ps/shard.h). A part that had taken step v already when an epoch begins at v takes no
// gradients of it again.
//
// With backup workers a step takes as many gradients as have a place in it, and the mean is over
// their samples. Who has none left asks for a later version; what it asked for may be gone.
//
// With a replica the part says nothing of version s + 1 before the replica has taken step s too.
// What the step was is kept as long as version s is: a replica that lacks it needs nothing else,
// and one that is made then gets version s, and the step.
//
// Sums go in the order of ranks, so the bits depend neither on who came first nor on how partitions
// are cut into parts and parts dealt to servers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/rows/row_part.h"

namespace trainyard::runtime::rows {

class RowSteps final : public RowPart {
 public:
  using RowPart::RowPart;

  void setVersion(std::int64_t version) override;
  // It can begin at plan.first_step and, with that still readable, at the version after it.
  Status open(std::int64_t epoch, const StepPlan& plan) override;
  Status canBegin(const StepPlan& plan) const override;
  // What those that wait have brought is dropped.
  void seal(std::vector<RowAnswer>& out) override;
  void cancel(CallId call) override;
  std::optional<RowAnswer> giveUp(CallId call) override;
  Status takeOver(GivenPart given) override;
  bool takeAsReplica(std::shared_ptr<const PartUpdate> update) override;
  std::int64_t told() const override { return version_ - (unconfirmed_ ? 1 : 0); }

  // Whether rows of the version before can be read too.
  bool hasFormer() const { return has_former_; }

 private:
  struct Parked {
    CallId call = 0;
    RowRequest request;
  };
  Outline outline(std::int64_t known) const override;
  Status take(RowRequest& request, CallId call, std::vector<RowAnswer>& out) override;
  Status checkVersion(const RowRequest& request) const;
  Status checkStep(const RowRequest& request) const;
  // Which of the step's gradients these are; nothing: none.
  std::optional<std::size_t> placeOf(const RowRequest& request) const;
  void expectGradients();
  void bring(RowRequest& request);
  void park(RowRequest request, CallId call, std::vector<RowAnswer>& out);
  std::string missing() const;
  void takeStep(std::vector<RowAnswer>& out);
  bool become(std::shared_ptr<const PartUpdate> step);
  void confirmed(std::vector<RowAnswer>& out) override;

  StepPlan plan_;
  bool has_former_ = false;
  std::shared_ptr<const PartUpdate> newest_;  // what has made version(), while has_former_
  // Of the step that turns version() into the next: by rank of those with samples, or by place;
  // then by table.
  std::vector<std::optional<std::vector<RowGradients>>> brought_;
  std::int64_t brought_samples_ = 0;
  std::vector<Parked> parked_;
};

}  // namespace trainyard::runtime::rows
