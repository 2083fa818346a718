// Chunks and parts of tables that are asked for over lanes to the servers that hold them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/lanes/event_loop.h"
#include "runtime/ps/chunk_link.h"
#include "runtime/ps/given_chunk.h"
#include "runtime/rows/row_part.h"
#include "trainyard/v1/coordinator.pb.h"
#include "trainyard/v1/parameter_server.pb.h"

namespace trainyard::runtime::ps {

// One thread of its own; who uses it is one thread too.
class FetchLanes {
 public:
  struct Question {
    std::size_t at = 0;  // what the asker calls it
    // Of the chunk; nothing: it is a part.
    std::optional<std::int64_t> elements;
    v1::FetchChunkRequest request;
  };
  using Given = std::variant<GivenChunk, rows::GivenPart>;
  struct Answer {
    std::size_t at = 0;
    StatusOr<Given> given;  // as was asked for; the failure names the server and the chunk
  };

  // To the epoch's `sources`; lanes take turns among the chunks that one of `grid` servers has.
  // Errors as of EventLoop::start().
  static StatusOr<std::unique_ptr<FetchLanes>> open(const DataAccess& access, int grid,
                                                    const v1::EpochInfo& epoch);
  // What was asked for and has not come is given up.
  ~FetchLanes();

  // Precondition: `ps` is one of the sources. One answer follows.
  void ask(int ps, Question question);
  // The server is called again when it is asked again; what it was asked for fails.
  void drop(int ps, const Status& why);
  // What has come since it was asked last; waits for something at most so long.
  std::vector<Answer> await(Duration most);

 private:
  class Link;
  FetchLanes() = default;
  void answer(Answer answer);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Answer> answers_;
  std::map<int, std::unique_ptr<Link>> links_;  // by server; each is the loop's thread's
  std::unique_ptr<lanes::EventLoop> loop_;      // last: its tasks use the rest
};

}  // namespace trainyard::runtime::ps
