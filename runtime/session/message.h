// What a user's program and the process of ours beside it (its member of the job) say to each other
// over a Unix socket: pure values and their bytes. Arrays are not among them: they lie in memory
// that both have mapped (session_memory.h).
//
// The program speaks first. It asks, and the member answers each question with what is named behind
// the arrow, or with kFailed; kPush, kPushRows, kLookAhead, kEvaluated, kSave and kAbort are not
// answered.
//
//   kHello -> kWelcome    versions, who this task is, the order of samples
//   kDeclare -> kMemory   the model and the data; then the program puts its first weights there
//   kNext -> kTurn        the first time: those weights are in place
//   kLookUp -> kRows      in a turn to train or to evaluate: rows of the job's tables
//   kPush                 this variable's gradient is in place
//   kPushRows             gradients of rows, before kFinish
//   kLookAhead            which rows later samples need: they may come with their turn
//   kFinish -> kOutcome   all are; the next version's weights are in place when the answer comes
//   kSum -> kSummed       instead, of a program that makes the update itself: all are; when the
//                         answer comes, the means over all workers' samples are in their place
//   kCommit -> kOutcome   the next version of the values is in place
//   kEvaluated            the result of a turn to evaluate (score.h)
//   kSave                 in a turn to save: where the program's state lies until the next turn
//                         comes
//   kAbort                the program cannot go on, and why: the job ends with that reason
//
// A body is numbers in this machine's byte order (both ends are on one machine) and texts with
// their length before them. decode() refuses (DATA_LOSS) what is too short, too long, or says what
// no program can mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/session/row_messages.h"
#include "runtime/tensor/element_type.h"
#include "runtime/train/turn.h"

namespace trainyard::runtime::session {

// Changes when one end can no longer understand the other.
inline constexpr std::uint32_t kProtocol = 5;
inline constexpr std::size_t kMostVariables = 1 << 20;
inline constexpr std::size_t kMostDimensions = 16;
inline constexpr std::size_t kMostBodyBytes = 256 << 20;
inline constexpr std::uint64_t kMostStateBytes = std::uint64_t{1} << 46;

enum class Kind : std::uint32_t {
  kHello = 1,
  kWelcome,
  kDeclare,
  kMemory,
  kNext,
  kTurn,
  kPush,
  kFinish,
  kOutcome,
  kEvaluated,
  kAbort,
  kFailed,
  kSum,
  kSummed,
  kCommit,
  kSave,
  kLookUp,
  kRows,
  kPushRows,
  kLookAhead,
};
inline constexpr std::uint32_t kLastKind = static_cast<std::uint32_t>(Kind::kLookAhead);
// "kNext" without the k, for texts.
std::string_view nameOf(Kind kind);
// DATA_LOSS: a body that no such message has.
Status damaged(Kind kind);

struct Message {
  Kind kind = Kind::kFailed;
  std::string body;
};

struct Hello {
  std::uint32_t protocol = kProtocol;
  std::string program = {};  // for logs: "python 3.11, trainyard 0.1.0"
};

struct Welcome {
  std::uint32_t protocol = kProtocol;
  std::string job = {};
  std::int32_t index = 0;  // of the worker task
  std::uint64_t seed = 0;  // of the order of samples
  std::vector<SessionTable> tables = {};
};

// Row-major. What is not trainable travels with the checkpoints only.
struct DeclaredVariable {
  std::string name;
  std::vector<std::int64_t> shape;  // {} is a scalar
  ElementType type = ElementType::kFloat32;
  bool trainable = true;

  std::int64_t elements() const;
  bool operator==(const DeclaredVariable&) const = default;
};

// What a program says of itself; the same in all workers of a job.
struct Declaration {
  std::int64_t samples = 0;       // to train on, at least 1
  std::int64_t eval_samples = 0;  // 0: it is not evaluated
  std::vector<DeclaredVariable> variables;
  // The program makes the next version of the values itself, from the means of the gradients.
  bool own_update = false;
  // It has state that only it understands, which goes with each version of the weights: it is asked
  // for it (Turn::Kind::kSave), and given it (kLoad).
  bool has_state = false;

  bool operator==(const Declaration&) const = default;
};
// 64 hexadecimal digits: equal for equal declarations.
std::string digestOf(const Declaration& declaration);
// Where `other` differs, for whoever has to mend it: "variable 3: conv1.weight float32 [32, 1, 5,
// 5], here conv1.weight float32 [16, 1, 5, 5]"; empty: it does not.
std::string difference(const Declaration& declaration, const Declaration& here);

// Where arrays or a state are: file descriptor `fd` of process `pid` (SharedMemory::open). 0 bytes,
// which only a state may have, are nowhere.
struct MemoryPlace {
  std::int32_t pid = 0;
  std::int32_t fd = 0;
  std::uint64_t bytes = 0;
};

struct TurnMessage {
  Turn turn;
  std::vector<std::int64_t> samples;  // numbers, kTrain only; kEvaluate: [position, + samples)
  MemoryPlace state = {};             // kLoad only: there until the program asks for the next turn
};

// Of kFinish and of kSum.
struct Finish {
  double loss_sum = 0;  // over the samples
  std::int32_t samples = 0;
  // Of the samples, those that this very pass told right; -1: nobody counted.
  std::int64_t hits = -1;
};

// Of kOutcome and of kSummed, where a complete step is yet to be committed.
struct Outcome {
  bool complete = false;  // false: the gradient was not taken; ask for the next turn
  bool too_late = false;  // not complete: backup workers had made the step without it
  std::int64_t step = 0;
  double loss = 0;  // mean over all workers' samples, when complete
  std::optional<double> gradient_norm = {};
};

std::string encode(const Hello& hello);
std::string encode(const Welcome& welcome);
std::string encode(const Declaration& declaration);
std::string encode(const MemoryPlace& place);
std::string encode(const TurnMessage& turn);
std::string encodePush(std::uint32_t variable);
std::string encodeSave(const MemoryPlace& state);
std::string encode(const Finish& finish);
std::string encode(const Outcome& outcome);
// `why` of kAbort and of kFailed; there also its code.
std::string encode(const Status& failure);

StatusOr<Hello> decodeHello(std::string_view body);
StatusOr<Welcome> decodeWelcome(std::string_view body);
StatusOr<Declaration> decodeDeclaration(std::string_view body);
StatusOr<MemoryPlace> decodeMemoryPlace(std::string_view body);
StatusOr<TurnMessage> decodeTurn(std::string_view body);
// Below `variables`.
StatusOr<std::uint32_t> decodePush(std::string_view body, std::size_t variables);
StatusOr<MemoryPlace> decodeSave(std::string_view body);
StatusOr<Finish> decodeFinish(std::string_view body);
StatusOr<Outcome> decodeOutcome(std::string_view body);
// Never OK: what is no failure is DATA_LOSS.
Status decodeFailure(std::string_view body);

}  // namespace trainyard::runtime::session
