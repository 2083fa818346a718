// A part of the tables in modes Async and BoundedDelay: each push is taken as it comes, once, and
// answered with the rows as they are then. Versions count updates, of which every `aggregate`
// pushes make one, with the mean over their samples (as with chunks, see
// runtime/ps/shard_async.cc).
//
// With a replica a push is answered when the replica has taken it too, and while it is on its way
// the part takes no other. So a replica has its part's pushes in the same order, and lacks at most
// the newest.
//
// What an epoch leaves stays: a push that came to some parts and not to others comes again under
// the next one, and those that have it know it by its number.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "runtime/data/number_set.h"
#include "runtime/rows/row_part.h"

namespace trainyard::runtime::rows {

class RowPushes final : public RowPart {
 public:
  // Precondition: aggregate >= 1.
  RowPushes(const std::vector<RowTableConfig>& tables, PartitionRange range, int aggregate);

  Status open(std::int64_t epoch, const StepPlan& plan) override;
  void seal(std::vector<RowAnswer>& out) override;
  // Pushes whose update lacks others (a worker has died) make a last one.
  void settle(std::int64_t version) override;
  void cancel(CallId call) override;
  std::optional<RowAnswer> giveUp(CallId call) override;
  Status takeOver(GivenPart given) override;
  bool takeAsReplica(std::shared_ptr<const PartUpdate> update) override;
  // Pushes that are in it, as far as its version counts them.
  std::int64_t point() const override;

  // Of the pushes that are in it.
  const NumberSet& tickets() const { return tickets_; }
  const NumberSet& samples() const { return samples_; }

 private:
  using Number = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  struct Waiting {
    CallId call = 0;
    RowRequest request;
  };
  Outline outline(std::int64_t known) const override;
  Status take(RowRequest& request, CallId call, std::vector<RowAnswer>& out) override;
  void confirmed(std::vector<RowAnswer>& out) override;
  bool isKnown(const RowRequest::Push& push) const;
  void bring(RowRequest& request);
  void contribute(const RowRequest::Push& push, std::int64_t step,
                  std::vector<RowGradients> gradients);
  void makeUpdate(std::int64_t step);
  static Number numberOf(const RowRequest::Push& push) {
    return {push.created, push.start, push.number};
  }

  const std::size_t aggregate_;
  std::map<std::uint32_t, Number> newest_;  // by worker
  NumberSet tickets_;
  NumberSet samples_;
  // Of the next update, in the order of arrival; by push, then by table.
  std::vector<std::vector<RowGradients>> brought_;
  std::int64_t brought_samples_ = 0;
  std::shared_ptr<const PartUpdate>
      last_;                    // the push that was taken last, while there are replicas
  std::vector<Waiting> taken_;  // in the part, and answered when the replica has it
  std::deque<Waiting> later_;   // came meanwhile
};

}  // namespace trainyard::runtime::rows
