#include "runtime/ps/fetch_lanes.h"

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/lanes/lane_client.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/chunk_body.h"
#include "runtime/ps/part_body.h"

namespace trainyard::runtime::ps {
namespace {

constexpr Duration kLaneTick = std::chrono::milliseconds(250);

// A frame that arrives, of either kind.
using Contents = std::variant<ArrivingChunk, ArrivingPart>;

StatusOr<Contents> contentsOf(const FetchLanes::Question& asked, std::string_view header,
                              std::uint64_t body_bytes) {
  if (asked.elements) {
    TY_ASSIGN_OR_RETURN(ArrivingChunk chunk,
                        ArrivingChunk::make(header, *asked.elements, body_bytes));
    return Contents(std::move(chunk));
  }
  TY_ASSIGN_OR_RETURN(ArrivingPart part, ArrivingPart::make(header, body_bytes));
  return Contents(std::move(part));
}

StatusOr<FetchLanes::Given> takenOf(Contents contents) {
  return std::visit(
      [](auto& arrived) -> StatusOr<FetchLanes::Given> {
        TY_ASSIGN_OR_RETURN(auto given, std::move(arrived).take());
        return FetchLanes::Given(std::move(given));
      },
      contents);
}

}  // namespace

// Questions to one server. On the loop's thread.
class FetchLanes::Link final : public lanes::LaneClient::Reader {
 public:
  Link(FetchLanes& owner, lanes::Intro intro, std::string address, lanes::LaneSecrets secrets,
       int grid)
      : owner_(owner),
        intro_(std::move(intro)),
        address_(std::move(address)),
        secrets_(std::move(secrets)),
        grid_(grid) {}

  void ask(Question question) {
    if (client_ == nullptr) {
      client_ =
          std::make_unique<lanes::LaneClient>(*owner_.loop_, address_, secrets_, intro_, *this);
    }
    const std::uint64_t number = ++number_;
    const std::uint64_t key = question.request.chunk() / static_cast<std::uint32_t>(grid_);
    std::string header = question.request.SerializeAsString();
    const Status sent = client_->send({number, lanes::Topic::kFetch, key, std::move(header), {}});
    if (!sent.ok()) return fail(question, sent);
    pending_.emplace(number, Pending{key, std::move(question)});
  }
  void drop(const Status& why) {
    client_.reset();
    onLost(std::nullopt, why);
  }
  void tick(TimePoint now) {
    if (client_ != nullptr) client_->tick(now);
  }

  Status onHeader(int lane, const lanes::FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    const auto found = pending_.find(head.number);
    if (found == pending_.end() || client_->laneOf(found->second.key) != lane)
      return absl::DataLossError("an answer to nothing that was asked");
    const Question& asked = found->second.question;
    if (head.kind == lanes::FrameKind::kRefusal && head.body_bytes == 0) {
      fail(asked, absl::FailedPreconditionError(std::string(header)));
      pending_.erase(found);
      return absl::OkStatus();
    }
    if (head.kind != lanes::FrameKind::kReply)
      return absl::DataLossError("a server answers with a chunk, or refuses");
    TY_ASSIGN_OR_RETURN(Contents contents, contentsOf(asked, header, head.body_bytes));
    auto arriving = std::make_unique<Arriving>(Arriving{head.number, std::move(contents)});
    body = std::visit([](auto& arrived) { return arrived.body(); }, arriving->contents);
    arriving_[lane] = std::move(arriving);
    return absl::OkStatus();
  }
  Status onFrame(int lane) override {
    const std::unique_ptr<Arriving> arrived = std::exchange(arriving_[lane], nullptr);
    if (arrived == nullptr) return absl::OkStatus();
    TY_ASSIGN_OR_RETURN(Given given, takenOf(std::move(arrived->contents)));
    const auto found = pending_.find(arrived->number);
    owner_.answer({found->second.question.at, std::move(given)});
    pending_.erase(found);
    return absl::OkStatus();
  }
  void onLost(std::optional<int> lane, const Status& why) override {
    std::vector<Question> lost;
    for (auto it = pending_.begin(); it != pending_.end();) {
      const bool here = !lane || client_->laneOf(it->second.key) == lane;
      if (here) lost.push_back(std::move(it->second.question));
      it = here ? pending_.erase(it) : std::next(it);
    }
    if (lane) {
      arriving_.erase(*lane);
    } else {
      arriving_.clear();
    }
    for (const Question& question : lost) fail(question, why);
  }

 private:
  struct Pending {
    std::uint64_t key = 0;
    Question question;
  };
  struct Arriving {
    std::uint64_t number = 0;
    Contents contents;
  };
  void fail(const Question& question, const Status& why) const {
    const std::string server = serverName(static_cast<int>(intro_.to.index));
    owner_.answer({question.at,
                   annotate(why, fmt::format("{}: chunk {}", server, question.request.chunk()))});
  }

  FetchLanes& owner_;
  const lanes::Intro intro_;
  const std::string address_;
  const lanes::LaneSecrets secrets_;
  const int grid_;
  std::unique_ptr<lanes::LaneClient> client_;  // null: nothing was asked since it was dropped
  std::uint64_t number_ = 0;
  std::unordered_map<std::uint64_t, Pending> pending_;  // by number
  std::map<int, std::unique_ptr<Arriving>> arriving_;   // by lane; null: nothing
};

StatusOr<std::unique_ptr<FetchLanes>> FetchLanes::open(const DataAccess& access, int grid,
                                                       const v1::EpochInfo& epoch) {
  std::unique_ptr<FetchLanes> lanes(new FetchLanes);
  for (const v1::ChunkSource& source : epoch.sources()) {
    const lanes::End server{v1::ROLE_PS, source.ps(), source.incarnation()};
    lanes->links_[static_cast<int>(source.ps())] = std::make_unique<Link>(
        *lanes, lanes::Intro{access.self, server}, source.address(), access.secrets, grid);
  }
  TY_ASSIGN_OR_RETURN(lanes->loop_, lanes::EventLoop::start(kLaneTick, [self = lanes.get()] {
                        for (const auto& [ps, link] : self->links_) link->tick(systemClock().now());
                      }));
  return lanes;
}

FetchLanes::~FetchLanes() {
  if (loop_ == nullptr) return;
  loop_->post([this] { links_.clear(); });
  loop_->stop();
}

void FetchLanes::ask(int ps, Question question) {
  loop_->post([link = links_.at(ps).get(), question = std::move(question)]() mutable {
    link->ask(std::move(question));
  });
}

void FetchLanes::drop(int ps, const Status& why) {
  loop_->post([link = links_.at(ps).get(), why] { link->drop(why); });
}

void FetchLanes::answer(Answer answer) {
  std::lock_guard lock(mutex_);
  answers_.push_back(std::move(answer));
  arrived_.notify_all();
}

std::vector<FetchLanes::Answer> FetchLanes::await(Duration most) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, most, [&] { return !answers_.empty(); });
  return std::exchange(answers_, {});
}

}  // namespace trainyard::runtime::ps
