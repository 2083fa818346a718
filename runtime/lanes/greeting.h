// What is said on a lane's connection before its first frame:
//
//   caller                                                    server
//   "TYLANE" and how it goes on: "--" as it is, "TS" in TLS  ->
//   a mutual proof of the job's data key (mutual_proof.h); its Intro: who calls, whom it means, and
//   which lane; the number of its Verdict: how many lanes the server has
//
// The first letter tells a lane from what else comes to a task's port. What a proof is worth is
// bound to both sides' nonces and the Intro, so to both incarnations and to this connection.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/core/clock.h"
#include "base/core/status.h"
#include "runtime/lanes/connection.h"
#include "runtime/lanes/event_loop.h"
#include "runtime/stream/stream.h"
#include "runtime/transport/mutual_proof.h"
#include "trainyard/v1/membership.pb.h"

namespace trainyard::runtime::lanes {

inline constexpr Duration kGreetingLimit = std::chrono::seconds(10);

// One end of a lane.
struct End {
  v1::Role role = v1::ROLE_PS;
  std::uint32_t index = 0;
  v1::Incarnation incarnation;
};
struct Intro {
  End from;
  End to;
  std::uint32_t lane = 0;
};
std::string encodeIntro(const Intro& intro);
// Precondition: as long as an Intro.
Intro decodeIntro(const std::string& bytes);

// How both sides prove and protect what they say.
struct LaneSecrets {
  std::string key;                                          // RuntimeKeys::data
  std::shared_ptr<const stream::Encryption> tls = nullptr;  // null: unencrypted
};

// What comes of it.
struct Greeted {
  std::unique_ptr<stream::Stream> stream;
  Connection::Seals seals;
  Intro intro;
  std::uint64_t lanes = 0;
};

// A conversation until its end, on one loop.
class Greeting : public EventLoop::Source {
 public:
  // Called once; the greeting must not be destroyed within. Errors: of the connection, of the
  // proof (mutual_proof.h), and of the verdict, FAILED_PRECONDITION with its reason.
  using Done = std::function<void(StatusOr<Greeted>)>;

  ~Greeting() override;
  void onReady() override;
  // To be called now and then: ends with DEADLINE_EXCEEDED after kGreetingLimit.
  void tick(TimePoint now);
  bool done() const { return done_ == nullptr; }

 protected:
  Greeting(EventLoop& loop, LaneSecrets secrets, Done done);
  void watch(int fd, bool writable);
  void end(StatusOr<Greeted> result);
  // What is next: false, it waits for the descriptor.
  virtual StatusOr<bool> advance() = 0;
  // Sends what it can of `bytes` and removes it; true when nothing is left.
  StatusOr<bool> sendAll(std::string& bytes);
  // At most `most` bytes; "" when there are none yet.
  StatusOr<std::string> receive(std::size_t most);

  EventLoop& loop_;
  const LaneSecrets secrets_;
  const transport::ProofTerms terms_;
  std::unique_ptr<stream::Stream> stream_;

 private:
  Done done_;
  const TimePoint limit_;
  int watched_ = -1;
};

// Calls `address` ("ip:port").
std::unique_ptr<Greeting> callServer(EventLoop& loop, const std::string& address,
                                     const LaneSecrets& secrets, const Intro& intro,
                                     Greeting::Done done);
// Answers a connection of which nothing has been read. `judge`: why this caller is not taken, or
// "".
std::unique_ptr<Greeting> answerCaller(EventLoop& loop, UniqueFd socket, const LaneSecrets& secrets,
                                       std::uint64_t lanes,
                                       std::function<std::string(const Intro&)> judge,
                                       Greeting::Done done);

}  // namespace trainyard::runtime::lanes
