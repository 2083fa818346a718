// A group of ranks as a program has it: operations in their order, letters beside them, and an end
// that does not wait for ranks that are gone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "runtime/client/fork_guard.h"
#include "runtime/client/mail.h"
#include "runtime/client/operations.h"
#include "runtime/client/work_queue.h"
#include "runtime/collective/group.h"

namespace trainyard::runtime::client {

struct ProgramGroupOptions {
  int rank = 0;
  std::vector<transport::TcpAddress> addresses;  // by rank
  std::string secret;
  std::uint64_t epoch = 0;
  Duration join_timeout = std::chrono::seconds(60);
  Duration timeout = std::chrono::minutes(30);  // of one operation or letter
  bool share_memory = true;
  bool deterministic = false;
  std::optional<ElementType> wire;
  std::size_t arena_bytes = 0;
  // Asked a few times a second by what a calling thread carries out; see ty_set_interrupt.
  std::function<bool()> interrupted = {};
};

// Thread-safe, but for leave().
class ProgramGroup {
 public:
  // `listener` may be null for one rank. Errors as of collective::joinGroup().
  static StatusOr<std::unique_ptr<ProgramGroup>> join(const transport::TcpListener* listener,
                                                      const ProgramGroupOptions& options);
  ~ProgramGroup();  // leave()
  ProgramGroup(const ProgramGroup&) = delete;
  ProgramGroup& operator=(const ProgramGroup&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(options_.addresses.size()); }
  const ProgramGroupOptions& options() const { return options_; }

  // What an operation does with the collective, which it has to itself meanwhile.
  using Operation = std::function<Status(Collective&, Staging&)>;
  using OperationRef = absl::FunctionRef<Status(Collective&, Staging&)>;
  std::shared_ptr<Work> give(Operation operation);
  Status run(OperationRef operation);
  std::shared_ptr<Work> send(int to, std::uint64_t tag, const Array& array);
  std::shared_ptr<Work> receive(int from, std::uint64_t tag, const Array& into);
  // False: not done.
  bool wait(const Work& work, TimePoint deadline) { return queue_.wait(work, deadline); }
  // How it went. CANCELLED when options().interrupted says so: what this thread carries out is
  // ended then, and with it the group; what another one does goes on.
  Status waitForEver(const Work& work);

  // All ranks; null for those that are not among `ranks`, which are ascending.
  StatusOr<std::unique_ptr<ProgramGroup>> split(const std::vector<int>& ranks);
  // For good. RESOURCE_EXHAUSTED.
  StatusOr<std::byte*> allocate(std::size_t bytes);
  void abort(const std::string& why);
  collective::Totals totals();
  // What is under way is given a second.
  void leave();

 private:
  explicit ProgramGroup(const ProgramGroupOptions& options);
  collective::GroupOptions groupOptions();
  Status connect(const transport::TcpListener* listener);
  Status carryOut(OperationRef operation);
  transport::Spin spin() const;
  bool cancelled();

  const ProgramGroupOptions options_;
  const std::shared_ptr<Monitor> monitor_;
  ClosedInChildren sockets_;  // before what owns them, after which it ends
  std::atomic<bool> ending_ = false;
  std::mutex aborting_;
  std::string abort_reason_;
  TimePoint ask_again_{};  // of whoever carries out an operation, as the next
  Status failure_;         // the first that ended the group
  Staging staging_;
  collective::Group group_;
  std::unique_ptr<Mail> mail_;
  bool left_ = false;
  WorkQueue queue_;
};

}  // namespace trainyard::runtime::client
