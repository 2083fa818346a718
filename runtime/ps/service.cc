#include "runtime/ps/service.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/core/check.h"
#include "base/core/failpoint.h"
#include "base/core/strings.h"
#include "base/process/cpus.h"
#include "fmt/format.h"
#include "runtime/placement/moves.h"
#include "runtime/ps/part_body.h"
#include "runtime/ps/protocol.h"
#include "runtime/ps/row_body.h"

namespace trainyard::runtime::ps {
namespace {

// More threads than these do not make the sums of one server faster than memory.
constexpr int kMostLanes = 4;

template <typename Request>
std::string otherProtocol(const Request& request) {
  return fmt::format("the request speaks protocol {}, this server {}", request.protocol(),
                     kChunkProtocol);
}

std::string wireName(std::uint32_t number) {
  return number < kElementTypes ? std::string(nameOf(static_cast<ElementType>(number)))
                                : fmt::format("of type {}", number);
}

}  // namespace

PsServiceOptions serviceOptions(lanes::LaneSecrets secrets, lanes::End self,
                                const Placement& placement, int lanes) {
  PsServiceOptions options;
  options.secrets = std::move(secrets);
  options.self = std::move(self);
  // Of the cores others have the rest: the kernel's half of each connection runs there too.
  options.lanes = lanes > 0 ? lanes : std::clamp(usableCores() / 2, 1, kMostLanes);
  for (const Chunk& chunk : placement.chunks) {
    options.max_body =
        std::max(options.max_body, static_cast<std::size_t>(chunk.elements) * sizeof(float));
  }
  return options;
}

// One caller's lane.
class PsService::Session final : public lanes::Connection::Reader {
 public:
  Session(PsService& service, lanes::Connection& connection, int lane)
      : connection(connection), lane(lane), service_(service), memory_(service.files_) {}

  Status onHeader(const lanes::FrameHead& head, std::string_view header,
                  std::vector<std::span<std::byte>>& body) override {
    if (head.kind != lanes::FrameKind::kRequest)
      return absl::DataLossError("a caller sends requests");
    head_ = head;
    if (head.topic == lanes::Topic::kSharedMemory) {
      if (head.body_bytes != 0 || !offer_.ParseFromArray(header.data(), length(header)))
        return absl::DataLossError("an offer of memory that cannot be read");
      return absl::OkStatus();
    }
    if (head.topic == lanes::Topic::kFetch) {
      if (head.body_bytes != 0 || !fetch_.ParseFromArray(header.data(), length(header)))
        return absl::DataLossError("a question for a chunk that cannot be read");
      return absl::OkStatus();
    }
    if (!header_.ParseFromArray(header.data(), length(header)))
      return absl::DataLossError("a chunk's header that cannot be read");
    const bool of_rows = ofTables() && service_.shard_.rows() != nullptr;
    const std::size_t longest = of_rows ? kMaxRowBody : service_.options_.max_body;
    if (head.body_bytes > longest)
      return absl::DataLossError("a body that is longer than any chunk");
    bytes_ = nullptr;
    if (head.body_bytes == 0) return absl::OkStatus();
    bytes_ = service_.lanes_[static_cast<std::size_t>(lane)]->bodies.take(head.body_bytes);
    body = {std::span(bytes_.get(), head.body_bytes)};
    return absl::OkStatus();
  }

  Status onFrame() override {
    if (head_.topic == lanes::Topic::kSharedMemory) {
      answerOffer();
      return absl::OkStatus();
    }
    if (head_.topic == lanes::Topic::kFetch) {
      service_.give(*this, head_.number, fetch_);
      return absl::OkStatus();
    }
    if (ofTables()) {
      const std::span<const std::byte> bytes(bytes_.get(), head_.body_bytes);
      service_.handleRows(*this, head_.number, header_, bytes);
      bytes_ = nullptr;
      return absl::OkStatus();
    }
    lent_.erase(header_.chunk());  // who asks again has read it, or wants it no more
    std::unique_ptr<GradientPayload> payload;
    if (bytes_ != nullptr) {
      const std::span<const std::byte> bytes(bytes_.get(), head_.body_bytes);
      payload = receivedPayload(service_.wireOf(header_), bytes, std::exchange(bytes_, nullptr));
    }
    service_.handle(*this, head_.number, header_, std::move(payload));
    return absl::OkStatus();
  }
  void onClosed(const Status&) override { service_.closed(*this); }

  void reply(lanes::FrameKind kind, lanes::Topic topic, std::uint64_t number, std::string header,
             std::vector<lanes::BodyPiece> body) const {
    connection.send(kind, topic, number, std::move(header), std::move(body));
  }
  void refuse(std::uint64_t number, std::string why) const {
    connection.send(lanes::FrameKind::kRefusal, lanes::Topic::kChunk, number, std::move(why));
  }

  // What the caller's memory holds at `place`.
  StatusOr<std::unique_ptr<GradientPayload>> payloadAt(const v1::SharedPlace& place,
                                                       ElementType wire) {
    TY_ASSIGN_OR_RETURN(const SharedPart part, memory_.part(place));
    return sharedPayload(wire, part.bytes, part.memory);
  }
  // The caller reads these weights where they are, until it asks for the chunk again: so long
  // nothing is written there.
  void lend(std::uint32_t chunk, std::shared_ptr<const Weights> weights) {
    lent_[chunk] = std::move(weights);
  }

  lanes::Connection& connection;
  const int lane;

 private:
  void answerOffer() {
    v1::ShareMemoryReply opened;
    const Status shared = [&]() -> Status {
      if (offer_.protocol() != kChunkProtocol)
        return absl::InvalidArgumentError(otherProtocol(offer_));
      TY_RETURN_IF_ERROR(memory_.open(offer_.file()));
      if (!offer_.weights()) return absl::OkStatus();
      TY_ASSIGN_OR_RETURN(const auto own, service_.memory());
      *opened.mutable_file() = own->file();
      return absl::OkStatus();
    }();
    const auto kind = shared.ok() ? lanes::FrameKind::kReply : lanes::FrameKind::kRefusal;
    reply(kind, lanes::Topic::kSharedMemory, head_.number,
          shared.ok() ? opened.SerializeAsString() : std::string(fromAbsl(shared.message())), {});
  }
  bool ofTables() const { return header_.tables_size() > 0; }
  static int length(std::string_view header) { return static_cast<int>(header.size()); }

  PsService& service_;
  lanes::FrameHead head_;
  v1::ChunkRequestHeader header_;
  v1::ShareMemoryRequest offer_;
  v1::FetchChunkRequest fetch_;
  std::shared_ptr<std::byte[]> bytes_;
  SharedPeer memory_;                                                       // the caller's
  std::unordered_map<std::uint32_t, std::shared_ptr<const Weights>> lent_;  // by chunk
};

PsService::PsService(PsServiceOptions options, Shard& shard, const Clock& clock,
                     std::function<void()> progressed, std::function<void()> urgent)
    : options_(std::move(options)),
      shard_(shard),
      clock_(clock),
      progressed_(std::move(progressed)),
      urgent_(std::move(urgent)),
      traffic_(v1::ROLE_WORKER) {
  for (int lane = 0; lane < options_.lanes; ++lane)
    lanes_.push_back(std::make_unique<Lane>(options_.wire));
  if (shard_.rows() != nullptr) gives_ = std::make_unique<WorkThread>();
}

PsService::~PsService() {
  close();
}

Status PsService::start() {
  lanes::LaneServer::Options options;
  options.lanes = options_.lanes;
  options.secrets = options_.secrets;
  options.judge = [this](const lanes::Intro& intro) { return judge(intro); };
  options.open = [this](lanes::Connection& connection, const lanes::Intro& intro) {
    return std::make_unique<Session>(*this, connection, static_cast<int>(intro.lane));
  };
  TY_ASSIGN_OR_RETURN(server_, lanes::LaneServer::start(std::move(options)));
  return absl::OkStatus();
}

void PsService::close() {
  if (gives_ != nullptr) gives_->stop();
  if (server_ != nullptr) server_->stop();
}

std::string PsService::judge(const lanes::Intro& intro) const {
  const auto text = [](const lanes::End& end) {
    return fmt::format("{} of life {}.{}", serverName(static_cast<int>(end.index)),
                       end.incarnation.created(), end.incarnation.start());
  };
  const std::string meant = text(intro.to);
  const std::string self = text(options_.self);
  return meant == self ? "" : fmt::format("{} is meant; this is {}", meant, self);
}

// Servers send each other means, which must not be rounded.
ElementType PsService::wireOf(const v1::ChunkRequestHeader& header) const {
  return header.replica() ? ElementType::kFloat32 : options_.wire;
}

// Whether the request may be looked at; it has been refused otherwise.
bool PsService::speaks(const Session& session, std::uint64_t number,
                       const v1::ChunkRequestHeader& header) const {
  if (header.protocol() != kChunkProtocol) {
    session.refuse(number, otherProtocol(header));
    return false;
  }
  const auto wire = wireOf(header);
  if (header.wire_type() == static_cast<std::uint32_t>(wire)) return true;
  session.refuse(number, fmt::format("the request's numbers are {}, this server's {} "
                                     "(training.wireType)",
                                     wireName(header.wire_type()), nameOf(wire)));
  return false;
}

// What is known of the request until it is answered.
CallId PsService::enter(const Session& session, const v1::ChunkRequestHeader& header, Call call,
                        std::size_t bytes) {
  (header.replica() ? replica_traffic_ : traffic_).received(call.peer, bytes);
  hitFailpoint(header.replica() ? "ps.replica" : "ps.request",
               header.pull_only() ? header.version() : header.step());
  Lane& lane = *lanes_[static_cast<std::size_t>(session.lane)];
  const CallId id = lane.next++ * lanes_.size() + static_cast<CallId>(session.lane);
  lane.calls.emplace(id, std::move(call));
  return id;
}

// The shard has looked at it.
void PsService::settle(const Session& session, const v1::ChunkRequestHeader& header,
                       std::uint64_t number, CallId id, std::vector<ChunkAnswer> answers) {
  const bool answered = std::any_of(answers.begin(), answers.end(),
                                    [&](const ChunkAnswer& answer) { return answer.call == id; });
  // It has arrived in full: its place in the caller's window is free, as it is with the answer.
  if (header.receipt() && !answered)
    session.connection.send(lanes::FrameKind::kReceipt, lanes::Topic::kChunk, number, "");
  if (shard_.takeUrgent()) urgent_();
  forward();
  deliver(std::move(answers));
  update();
}

void PsService::handle(Session& session, std::uint64_t number, const v1::ChunkRequestHeader& header,
                       std::unique_ptr<GradientPayload> payload) {
  if (!speaks(session, number, header)) return;
  if (header.has_shared()) {
    auto there = session.payloadAt(header.shared(), wireOf(header));
    if (!there.ok()) return session.refuse(number, std::string(fromAbsl(there.status().message())));
    payload = *std::move(there);
  }
  const TimePoint now = clock_.now();
  const std::uint32_t peer = header.replica() ? header.holder() : header.worker();
  const CallId id =
      enter(session, header, {&session, number, peer, header.replica(), header.reads_shared(), now},
            payload == nullptr ? 0 : payload->sizeBytes());
  std::vector<ChunkAnswer> answers;
  shard_.onRequest(header, std::move(payload), id, now, answers);
  settle(session, header, number, id, std::move(answers));
}

void PsService::handleRows(Session& session, std::uint64_t number,
                           const v1::ChunkRequestHeader& header, std::span<const std::byte> body) {
  if (!speaks(session, number, header)) return;
  if (shard_.rows() == nullptr) return session.refuse(number, "the job has no tables");
  const TimePoint now = clock_.now();
  const std::uint32_t peer = header.replica() ? header.holder() : header.worker();
  const CallId id =
      enter(session, header, {&session, number, peer, header.replica(), false, now}, body.size());
  std::vector<ChunkAnswer> answers;
  shard_.onRowRequest(header, body, id, now, answers);
  settle(session, header, number, id, std::move(answers));
}

// Between epochs the data threads have nothing else to do.
void PsService::give(const Session& session, std::uint64_t number,
                     const v1::FetchChunkRequest& request) {
  if (request.has_follows() && gives_ != nullptr) return giveLater(session, number, request);
  hitFailpoint("ps.give", request.epoch());
  sendGiven(session, number, given(request));
}

void PsService::giveLater(const Session& session, std::uint64_t number,
                          v1::FetchChunkRequest request) {
  const int at = session.lane;
  Lane& lane = *lanes_[static_cast<std::size_t>(at)];
  const CallId id = lane.next++;
  lane.gives[id] = {&session, number};
  gives_->add([this, at, id, request = std::move(request)] {
    hitFailpoint("ps.give", request.epoch());
    auto frame = std::make_shared<StatusOr<ChunkFrame>>(given(request));
    server_->loop(at).post([this, at, id, frame] {
      auto asked = lanes_[static_cast<std::size_t>(at)]->gives.extract(id);
      if (asked.empty()) return;  // its caller is gone
      sendGiven(*asked.mapped().session, asked.mapped().number, std::move(*frame));
    });
  });
}

void PsService::sendGiven(const Session& session, std::uint64_t number,
                          StatusOr<ChunkFrame> frame) {
  if (!frame.ok()) {
    return session.reply(lanes::FrameKind::kRefusal, lanes::Topic::kFetch, number,
                         std::string(fromAbsl(frame.status().message())), {});
  }
  session.reply(lanes::FrameKind::kReply, lanes::Topic::kFetch, number, std::move(frame->header),
                std::move(frame->body));
}

StatusOr<ChunkFrame> PsService::given(const v1::FetchChunkRequest& request) const {
  if (request.protocol() != kChunkProtocol)
    return absl::FailedPreconditionError(otherProtocol(request));
  if (shard_.isPart(request.chunk())) {
    TY_ASSIGN_OR_RETURN(rows::GivenPart part, shard_.givePart(request));
    return frameOf(std::move(part));
  }
  TY_ASSIGN_OR_RETURN(GivenChunk chunk, shard_.give(request));
  return frameOf(std::move(chunk));
}

void PsService::update() {
  for (;;) {
    std::vector<ChunkAnswer> answers;
    if (!shard_.updateNext(answers)) return;
    forward();
    deliver(std::move(answers));
  }
}

void PsService::forward() {
  std::vector<ReplicaUpdate> updates = shard_.takeUpdates();
  if (!updates.empty()) replicate_(std::move(updates));
}

void PsService::replicated(const v1::ChunkRequestHeader& update) {
  hitFailpoint("ps.replicated", update.step());
  std::vector<ChunkAnswer> answers;
  shard_.onReplicated(update, answers);
  forward();
  deliver(std::move(answers));
}

// The answers of another thread's callers are sent there.
void PsService::deliver(std::vector<ChunkAnswer> answers) {
  std::vector<std::vector<ChunkAnswer>> others;
  std::optional<int> here;  // the lane whose thread this is
  for (ChunkAnswer& given : answers) {
    const int lane = laneOf(given.call);
    if (server_->loop(lane).here()) {
      here = lane;
      answer(lane, given);
      continue;
    }
    others.resize(lanes_.size());
    others[static_cast<std::size_t>(lane)].push_back(std::move(given));
  }
  if (here) forgetWeights(*here);
  for (int lane = 0; lane < static_cast<int>(others.size()); ++lane) {
    auto& theirs = others[static_cast<std::size_t>(lane)];
    if (theirs.empty()) continue;
    auto shared = std::make_shared<std::vector<ChunkAnswer>>(std::move(theirs));
    server_->loop(lane).post([this, lane, shared] {
      for (const ChunkAnswer& one : *shared) answer(lane, one);
      forgetWeights(lane);
    });
  }
  if (shard_.takeProgress()) progressed_();
}

// The answers that were given together have left.
void PsService::forgetWeights(int lane) {
  lanes_[static_cast<std::size_t>(lane)]->weights.forget();
}

void PsService::answer(int lane, const ChunkAnswer& answer) {
  auto& calls = lanes_[static_cast<std::size_t>(lane)]->calls;
  const auto found = calls.find(answer.call);
  if (found == calls.end()) return;  // its caller is gone
  const Call call = std::move(found->second);
  calls.erase(found);
  if (!call.of_replica) {
    hitFailpoint("ps.answer", answer.header.version());
    ++requests_;
    std::lock_guard lock(times_mutex_);
    times_.observe(toSeconds(clock_.now() - call.arrived));
  }
  send(*lanes_[static_cast<std::size_t>(lane)], call, answer);
}

void PsService::send(Lane& lane, const Call& call, const ChunkAnswer& answer) {
  const auto bytes = answer.payload == nullptr
                         ? std::span<const std::byte>()
                         : std::as_bytes(std::span<const float>(*answer.payload));
  v1::ChunkReplyHeader header = answer.header;
  std::vector<lanes::BodyPiece> body;
  std::optional<v1::SharedPlace> place;
  if (call.reads_shared && !bytes.empty()) place = placeOf(bytes);
  if (place) {
    *header.mutable_shared() = *std::move(place);
    call.session->lend(header.chunk(), answer.payload);
    ++shared_requests_;
    traffic_.transmitted(call.peer, bytes.size());
  } else if (!bytes.empty()) {
    body = lane.weights.of(answer.payload);
    traffic_.transmitted(call.peer, bytesOf(body));
  }
  call.session->reply(lanes::FrameKind::kReply, lanes::Topic::kChunk, call.number,
                      header.SerializeAsString(), std::move(body));
}

StatusOr<std::shared_ptr<SharedPool>> PsService::memory() {
  const std::lock_guard lock(memory_mutex_);
  if (memory_ == nullptr) {
    TY_ASSIGN_OR_RETURN(memory_, SharedPool::create(shard_.parameterBytes(), shard_.chunks()));
    shard_.setMemory(memory_);
  }
  return memory_;
}

// Weights of a version from before there was memory to share, or for which none is left, are sent.
std::optional<v1::SharedPlace> PsService::placeOf(std::span<const std::byte> bytes) {
  const auto pool = memory();
  return pool.ok() ? (*pool)->placeOf(bytes) : std::nullopt;
}

void PsService::closed(const Session& session) {
  Lane& lane = *lanes_[static_cast<std::size_t>(session.lane)];
  std::erase_if(lane.gives, [&](const auto& entry) { return entry.second.session == &session; });
  std::erase_if(lane.calls, [&](const auto& entry) {
    const bool gone = entry.second.session == &session;
    if (gone) shard_.onCancelled(entry.first);
    return gone;
  });
}

}  // namespace trainyard::runtime::ps
