// Synchronizer over parameter servers: the worker machine with sockets, tensors and time around it.
#pragma once

#include <condition_variable>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "runtime/placement/placement.h"
#include "runtime/ps/chunk_client.h"
#include "runtime/ps/row_link.h"
#include "runtime/ps/server_addresses.h"
#include "runtime/ps/traffic.h"
#include "runtime/ps/worker_machine.h"
#include "runtime/tensor/element_type.h"
#include "runtime/train/member_synchronizer.h"

namespace trainyard::runtime::ps {

struct PsSynchronizerOptions {
  WorkerConfig worker;
  DataAccess access;
  // Sends a question to the coordinator; `answer` is called once, on any thread, also from within.
  using AskFunction = std::function<void(
      const v1::TakeRequest&, std::function<void(const Status&, const v1::TakeReply&)> answer)>;
  AskFunction ask;  // modes that ask (see TakeRequest)
  // Asynchronous modes: clips each push by its own norm (push_clip.h); 0: no clipping. Gradients
  // then leave when all are there.
  double push_clip_norm = 0;
  // Servers that have the same address as this worker read its payloads in its memory, and it reads
  // theirs.
  bool share_memory = true;
  // The job's tables; nothing: it has none. The worker's ps_of_part is the grid's.
  std::optional<RowLinkOptions> rows = std::nullopt;
  // What gradients and weights travel as.
  ElementType wire = ElementType::kFloat32;
  Duration call_limit = std::chrono::seconds(90);
  // How long next() and finish() may wait without any sign of progress before they fail; they name
  // what they wait for meanwhile.
  Duration patience = std::chrono::hours(1);
};

// next/push/finish/evaluated/abort: the trainer's thread. The rest: any thread.
class PsSynchronizer final : public MemberSynchronizer, RowExchange {
 public:
  // `weights` are the model's spans in the order of its variables, placement.variables without
  // global_step; they must outlive this. `urgent` asks the link to report at once.
  PsSynchronizer(PsSynchronizerOptions options, const Placement& placement,
                 std::vector<std::span<float>> weights, const Clock& clock,
                 std::function<void()> urgent);
  ~PsSynchronizer() override;

  StatusOr<Turn> next() override;
  bool push(Gradient gradient) override;
  StatusOr<StepOutcome> finish(const BatchLoss& loss) override;
  void evaluated(const BatchScore& score) override;
  void abort(std::int64_t step, std::string_view variable, std::string_view reason) override;
  bool interrupted() const override;
  RowExchange* rowExchange() override { return rows_ == nullptr ? nullptr : this; }

  void onView(const v1::View& view) override;
  void fillReport(v1::MemberReport& report) const override;
  void setMembership(const v1::Membership& membership) override;
  // Servers on this machine read them there.
  std::shared_ptr<std::pmr::memory_resource> gradientMemory() const override {
    return gradient_memory_;
  }
  void fillTraffic(v1::RuntimeReport& report) const override;
  const Traffic& traffic() const { return traffic_; }
  std::string waitingFor() const;
  bool over() const;

 private:
  struct Piece {
    int variable;  // of the model
    std::int64_t begin, end;
  };
  std::size_t smallestAlone() const;
  StatusOr<std::shared_ptr<SharedPool>> makePool();
  void pump();
  bool sendSome(TimePoint now);
  void ask(const v1::TakeRequest& request);
  void changed();
  void releaseClipped();
  void gradientThere(std::size_t variable);
  void followServers(const v1::View& view);
  std::vector<PayloadPiece> payloadOf(std::uint32_t chunk) const;
  std::vector<std::span<float>> targetsOf(std::uint32_t chunk) const;
  std::vector<std::span<float>> onReply(const ChunkClient::Reply& reply);
  void tellStall(const ChunkClient::Reply& reply);
  void onStored(const ChunkClient::Reply& reply);
  std::string overflowIn(std::uint32_t chunk) const;
  bool isPart(std::uint32_t chunk) const { return rows_ != nullptr && rows_->isPart(chunk); }
  bool isRead(std::uint32_t chunk) const { return rows_ != nullptr && rows_->isRead(chunk); }

  // ps_synchronizer_rows.cc
  TurnRows rows() override;
  void pushRows(RowValues gradients) override;
  void pushRows(const RowSums& sums) override;
  void rowsReady();
  StatusOr<RowValues> readRows(const RowIds& ids) override;
  struct RowRead {
    Send send;
    RowBytes body;
  };
  void beginRead(const RowIds& ids, bool newest);
  StatusOr<std::vector<RowRead>> takeReads();
  void sendReads(const std::vector<RowRead>& reads);
  std::vector<std::span<float>> onReadReply(const ChunkClient::Reply& reply);
  void onReadEnd(const ChunkClient::Reply& reply, bool stored);

  const PsSynchronizerOptions options_;
  const Clock& clock_;
  const std::function<void()> urgent_;
  std::vector<std::span<float>> weights_;
  std::vector<std::string> names_;                     // by model variable
  std::vector<std::vector<Piece>> pieces_;             // by chunk
  std::vector<std::size_t> elements_;                  // by chunk
  std::vector<std::vector<std::uint32_t>> chunks_of_;  // by model variable
  std::shared_ptr<LatePool> gradient_memory_;
  std::optional<TimePoint> stall_told_;  // the lanes' thread alone
  Traffic traffic_;
  std::mutex addresses_mutex_;  // before mutex_, and before the client's
  ServerAddresses addresses_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<WorkerMachine> machine_;
  std::vector<Gradient> gradients_;  // by model variable, of the step in progress
  std::vector<int> missing_;         // by chunk: variables without a gradient
  std::size_t held_ = 0;             // gradients that wait to be clipped
  int samples_ = 0;                  // of the step in progress
  std::optional<double> push_norm_;  // of the step in progress, with push_clip_norm
  std::unique_ptr<RowLink> rows_;    // null: no tables
  TurnRows turn_rows_;               // of the turn that was given last
  // Of readRows(): by part, the attempt that is under way, or when to ask (again).
  struct Reading {
    std::uint64_t attempt = 0;
    bool done = false;
    std::optional<TimePoint> due;
  };
  std::vector<Reading> reading_;
  bool rows_gone_ = false;  // those of the turn's version
  bool reading_newest_ = false;
  std::uint64_t read_attempts_ = 0;
  bool finishing_ = false;  // the trainer waits for the end of its step
  bool closing_ = false;
  int asking_ = 0;                       // questions under way
  std::unique_ptr<ChunkClient> client_;  // last: its destructor waits for callbacks into the rest
};

}  // namespace trainyard::runtime::ps
