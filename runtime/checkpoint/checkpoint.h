// A checkpoint: one safetensors file per parameter server and one manifest that makes them a whole.
// A manifest appears only after all its files are durable; there is no mutable "latest".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/core/status.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/checkpoint/table_arrays.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {

inline constexpr int kCheckpointFormat = 1;
// Partitions of every table (rows::kPartitions).
inline constexpr int kTablePartitions = 1024;

// One array in a shard file, named "fc1_wei[0:6422528]" or "fc1_wei[0:6422528]/rms" for a slot:
// elements [begin, end) of the flattened variable.
struct ShardTensor {
  std::string variable;
  std::string slot;  // "" for the weights
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool is_int32 = false;
  std::span<const std::byte> bytes;  // little-endian; not owned
};

struct ShardFileInfo {
  std::string name;  // file name inside the checkpoint directory
  std::uint64_t size = 0;
  std::string sha256;  // hex
  // Its rows are to be read on top of the manifest's base. A stop may name a version that had been
  // asked for as a delta before: then who had heard of that has written one, and others have not.
  bool delta = false;
};

// "fc1_wei[0:6422528]" or "fc1_wei[0:6422528]/rms".
std::string shardTensorName(std::string_view variable, std::string_view slot, std::int64_t begin,
                            std::int64_t end);

// Writes DIR/NAME durably: temporary file (NAME.tmp), fsync, rename, fsync of the directory; an
// older file of that name is replaced. Blocks for the disk; needs no memory beside the header.
// Errors name the file (disk full: RESOURCE_EXHAUSTED); the temporary file is gone then. Rows that
// are `late` are read one piece at a time, behind all else.
StatusOr<ShardFileInfo> writeShard(const std::string& dir, const std::string& name,
                                   const std::vector<ShardTensor>& tensors,
                                   const std::vector<ShardArray>& arrays = {},
                                   const std::vector<LateTable>& late = {});

struct ManifestVariable {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype;  // F32 | I32
};

struct EpochRecord {
  std::int64_t epoch = 0;
  std::int64_t first_step = 0;
  std::int64_t first_position = 0;
  int ranks = 0;
  std::int64_t step_samples = 0;  // of all ranks in a full step
};

// Positions [first, first + samples) of the sample stream.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t samples = 0;
  bool operator==(const SampleRange&) const = default;
};

// What a checkpoint is; JSON on disk, file name "step-1200.e5.json".
struct Manifest {
  int format = kCheckpointFormat;
  std::string job_uid;
  std::string model_digest;  // over names, shapes, dtypes and slots: a checkpoint of another model
                             // is refused
  std::string data_sha256;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t position = 0;        // samples [0, position) of the stream are consumed, but for:
  std::vector<SampleRange> unread;  // lent to workers that had not pushed (asynchronous modes)
  std::int64_t data_samples = 0;
  std::vector<EpochRecord> epochs;
  // The first epoch since which the job has not gone back to a checkpoint, and the manifest with
  // which it began; "": the job's beginning. 0: it is not known.
  std::int64_t history = 0;
  std::string history_from;
  std::string optimizer;
  std::vector<std::string> slots;
  std::vector<ManifestVariable> variables;
  std::vector<ManifestTable> tables;  // in the order of the job; none: it has no tables
  std::vector<ShardFileInfo> files;
  // Of a delta: the manifest that the rows of such files are to be read on top of, itself a delta
  // or not, by file name; "": there are none. Variables are whole always.
  std::string base;
  std::int64_t unix_ms = 0;
  int max_ps = 0;
  std::int64_t writer = 0;  // the number of the claim under which it was committed; 0: of none

  std::string fileName() const;
};

// Number of elements of a manifest's variable; 1 for a scalar.
std::int64_t elements(const ManifestVariable& variable);

// Creates the manifest exclusively (ALREADY_EXISTS when one of that name stands) and durably.
// INVALID_ARGUMENT for a manifest that readManifest() would refuse.
Status commitManifest(const std::string& dir, const Manifest& manifest);
// NOT_FOUND when there is none. INVALID_ARGUMENT names file, field and what is wrong: not a
// manifest, another format, a name that does not go with the content, a file name that leaves the
// directory.
StatusOr<Manifest> readManifest(const std::string& path);
// All readable manifests of a directory, newest (step, epoch) first, without those that are void
// (claim.h); unreadable ones are listed in `problems` (may be null), one line each. An absent
// directory holds none.
std::vector<Manifest> listManifests(const std::string& dir, std::vector<std::string>* problems);
// The same, but fails where that is not known now (mayPass(), runtime/storage/storage.h): what is
// left out may be the newest.
StatusOr<std::vector<Manifest>> readManifests(const std::string& dir,
                                              std::vector<std::string>* problems);
// The manifest that a user means by `path`: a manifest's file, or a directory of checkpoints or a
// run directory (which has them in checkpoints/), of which it is the newest. Errors name the path:
// NOT_FOUND, or INVALID_ARGUMENT for a place without checkpoints and for one with a manifest that
// cannot be read, which might be the newest.
StatusOr<std::string> findManifest(const std::string& path);
// The highest epoch that the name of a manifest carries, readable or not, of whatever job; 0
// without any. A new epoch takes a higher number, so that its manifests meet no file of their name.
// The error is that of listing the directory.
StatusOr<std::int64_t> highestEpochNamed(const std::string& dir);
// Manifests from `manifest`, which is read from `dir`, to the whole one that it is a delta of in
// the end. DATA_LOSS names one that is missing, or does not come before the one that names it.
StatusOr<std::vector<Manifest>> chainOf(const std::string& dir, const Manifest& manifest);
// Size and SHA-256 of every file against the manifest, and against those of its chain. DATA_LOSS
// names the first that is missing or differs.
Status verifyFiles(const std::string& dir, const Manifest& manifest);
// Removes void manifests (claim.h) and all but the `keep` (>= 1) newest of the others and those of
// their chains, then shard and temporary files that none of the kept ones names. What may be in the
// making stays: files that are younger than the newest manifest, or that carry a later step or
// epoch in their names. So do the newest manifest of the highest epoch, the files of unreadable
// manifests, and files whose names are not a checkpoint's.
Status prune(const std::string& dir, int keep);

// Reads any ranges of any variables from a checkpoint, whatever the number of shards that wrote it.
// Immutable; thread-safe; holds the files open, so prune() does not disturb it. Movable and
// copyable.
class CheckpointReader {
 public:
  // When a file's SHA-256 is compared: before anything is read, or, of the files that are read at
  // all, before the first byte of theirs is given out. What is one server's part of a checkpoint is
  // in few of them, and of a large one reading them all takes minutes.
  enum class Verify { kAll, kWhatIsRead };
  // Opens all files, of the whole chain of a delta, and verifies their sizes, their SHA-256 as
  // `verify` says, and that every element of every variable stands in exactly one of them.
  // DATA_LOSS names the file or the variable, from what reads too.
  static StatusOr<CheckpointReader> open(const std::string& dir, const Manifest& manifest,
                                         Verify verify = Verify::kAll);
  const Manifest& manifest() const { return manifest_; }
  // Of a delta, what it is one of; null: it is whole.
  const CheckpointReader* base() const { return base_.get(); }
  // Copies elements [begin, begin + out.size()) of `variable`'s weights (slot "") or slot.
  // NOT_FOUND names variable and range; INVALID_ARGUMENT when the variable is not float32.
  Status read(const std::string& variable, const std::string& slot, std::int64_t begin,
              std::span<float> out) const;
  // The same for any dtype; `out` holds whole 4-byte elements, little-endian.
  Status readBytes(const std::string& variable, const std::string& slot, std::int64_t begin,
                   std::span<std::byte> out) const;
  // Whether a slot is stored for the variable (an int32 variable has none).
  bool hasSlot(const std::string& variable, const std::string& slot) const;
  // Calls `sink` with all rows of a table (by number in the manifest) that are in partitions
  // [first, last), piece by piece, ascending; a piece may have others beside them. Of a delta these
  // are all rows, too. Stops at the first error; DATA_LOSS names the file.
  Status walkTable(std::size_t table, int first, int last,
                   const std::function<Status(TableRows)>& sink) const;
  // Of a table: how many rows it has, and the bytes of one of their arrays ("ids", "rows", a slot),
  // little-endian, in the same order and piece by piece.
  StatusOr<std::int64_t> rowsOf(std::size_t table) const;
  // Partitions [first, last) of each piece of a table, ascending.
  std::vector<std::pair<int, int>> cutsOf(std::size_t table) const;
  // All pieces of a table are of deltas.
  bool isDelta(std::size_t table) const;
  // What this checkpoint alone has of a table: of a delta, rows that have changed or come since its
  // base, and ids that are gone.
  Status walkOwnTable(std::size_t table, int first, int last,
                      const std::function<Status(TableRows)>& sink) const;
  Status walkTableArray(std::size_t table, const std::string& array,
                        const std::function<Status(std::span<const std::byte>)>& sink) const;

 private:
  struct Piece {
    std::int64_t begin, end;  // elements
    std::size_t file;
    std::uint64_t offset;  // of `begin`, from the start of the file
  };
  struct OpenFile {
    ShardFileInfo info;
    std::shared_ptr<const ReadableFile> file;
    // Whether its content is the manifest's; found out once.
    Status verified() const;
    Status read(std::uint64_t offset, std::span<std::byte> out) const;

   private:
    mutable std::once_flag once_;
    mutable Status found_;
  };
  CheckpointReader() = default;
  Status addFile(const std::string& dir, const ShardFileInfo& info, Verify verify);
  Status checkCoverage();
  // table_reader.cc
  Status addTableArray(const TableArrayName& name, const SafetensorsEntry& entry,
                       std::uint64_t data_start);
  Status checkTables();
  StatusOr<TableRows> readPiece(std::size_t table, const TablePiece& piece) const;
  bool isDelta(const TablePiece& piece) const { return files_[piece.file]->info.delta; }
  StatusOr<TableRows> wholePiece(std::size_t table, const TablePiece& piece) const;
  template <typename T>
  Status readArray(const TablePiece& piece, const std::string& name, std::vector<T>& out) const;

  Manifest manifest_;
  std::shared_ptr<const CheckpointReader> base_;  // null: it is whole
  std::vector<std::shared_ptr<const OpenFile>> files_;
  std::map<std::pair<std::string, std::string>, std::vector<Piece>> pieces_;  // by variable, slot
  std::map<std::string, std::vector<TablePiece>> tables_;                     // by name; ascending
};

// SHA-256 (hex) over sorted variable names, dtype, shape, whole tensors, slots, and the step: the
// same for the same state, whatever the number of shards.
StatusOr<std::string> checkpointDigest(const CheckpointReader& reader);

// Writes one safetensors file with whole tensors under their variables' names and, with `slots`,
// the optimizer's as "variable/slot"; durably, as writeShard() does. NaN and infinity pass
// unchanged. Of a table "table/ids" (I64, the bits of an unsigned number) and "table/rows" (F32,
// [rows, dim]), with `slots` also "table/rows/slot", "table/steps" and "table/counts" (I32);
// nothing of one without rows. The arrays of `beside`, a safetensors file with what is in no shard,
// follow; "": none.
Status exportSafetensors(const CheckpointReader& reader, const std::string& path, bool slots,
                         const std::string& beside = "");

}  // namespace trainyard::runtime
