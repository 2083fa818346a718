// A caller that says one frame after the other and waits for each answer.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/process/unique_fd.h"
#include "runtime/lanes/greeting.h"
#include "runtime/transport/mutual_proof.h"
#include "tests/base/process/recording_relay.h"

namespace trainyard::runtime::lanes {

inline constexpr Duration kLimit = std::chrono::seconds(60);

class RawLane {
 public:
  struct Frame {
    FrameHead head;
    std::string header;
    std::string body;
  };

  // Errors as of the proof, and FAILED_PRECONDITION with the verdict's reason. `version`: the one
  // that it claims to speak.
  static StatusOr<RawLane> open(int port, const std::string& key, const Intro& intro,
                                std::uint16_t version = kLaneVersion) {
    RawLane lane(connectTo(port));
    const transport::ProofTerms terms{"TYLANE", "trainyard lane", "a task of a Trainyard job",
                                      version, key};
    transport::SenderProof proof(terms, encodeIntro(intro));
    sendAll(lane.fd(), "TYLANE--");
    for (;;) {
      sendAll(lane.fd(), std::exchange(proof.outgoing(), {}));
      TY_ASSIGN_OR_RETURN(const std::string bytes, lane.read(proof.needs()));
      TY_ASSIGN_OR_RETURN(const std::optional<transport::Verdict> verdict, proof.take(bytes));
      if (!verdict) continue;
      if (verdict->kind != transport::Verdict::Kind::kTaken)
        return absl::FailedPreconditionError(verdict->why);
      lane.lanes_ = verdict->number;
      lane.in_.emplace(proof.connectionKey(), 1);
      lane.out_.emplace(proof.connectionKey(), 0);
      return lane;
    }
  }

  int fd() const { return socket_.get(); }
  std::uint64_t lanes() const { return lanes_; }
  // As it would leave next.
  std::string seal(FrameKind kind, Topic topic, std::uint64_t number, const std::string& header,
                   std::size_t body_bytes) {
    const FrameHead head{kind, topic, number, static_cast<std::uint32_t>(header.size()),
                         body_bytes};
    const FrameBytes bytes = encodeFrame(head, header, *out_);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + header;
  }
  void send(FrameKind kind, Topic topic, std::uint64_t number, const std::string& header,
            const std::string& body) {
    sendAll(fd(), seal(kind, topic, number, header, body.size()));
    sendAll(fd(), body);
  }
  // UNAVAILABLE: the other side has closed. DATA_LOSS: a frame that is not its own.
  StatusOr<Frame> receive() {
    TY_ASSIGN_OR_RETURN(const std::string head, read(kFrameBytes));
    FrameBytes bytes;
    std::memcpy(bytes.data(), head.data(), head.size());
    Frame frame;
    TY_ASSIGN_OR_RETURN(frame.head, decodeFrame(bytes));
    TY_ASSIGN_OR_RETURN(frame.header, read(frame.head.header_bytes));
    TY_RETURN_IF_ERROR(checkSeal(bytes, frame.header, *in_));
    TY_ASSIGN_OR_RETURN(frame.body, read(frame.head.body_bytes));
    return frame;
  }

 private:
  explicit RawLane(UniqueFd socket) : socket_(std::move(socket)) {}
  StatusOr<std::string> read(std::size_t bytes) const {
    std::string got(bytes, '\0');
    std::size_t at = 0;
    while (at < bytes) {
      const ssize_t n = ::recv(fd(), got.data() + at, bytes - at, 0);
      if (n <= 0) return absl::UnavailableError("the other side has closed");
      at += static_cast<std::size_t>(n);
    }
    return got;
  }

  UniqueFd socket_;
  std::uint64_t lanes_ = 0;
  std::optional<FrameSeal> in_, out_;
};

}  // namespace trainyard::runtime::lanes
