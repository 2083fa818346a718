#include <algorithm>
#include <utility>

#include "base/core/strings.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/names.h"
#include "runtime/checkpoint/safetensors_file.h"

namespace trainyard::runtime {
namespace {

Status damaged(std::string_view path, std::string_view what) {
  return absl::DataLossError(fmt::format("{}: {}", path, what));
}

// Opens DIR/NAME if it is a regular file of the manifest's size.
StatusOr<std::shared_ptr<const ReadableFile>> openOfSize(const std::string& path,
                                                         const ShardFileInfo& info) {
  StatusOr<std::shared_ptr<const ReadableFile>> file = openStored(path);
  if (absl::IsNotFound(file.status())) return damaged(path, "is missing");
  if (!file.ok()) return file;
  if ((*file)->size() != info.size) {
    return damaged(path, fmt::format("{} bytes long, expected {}", (*file)->size(), info.size));
  }
  return file;
}

Status checkContent(const ReadableFile& file, const ShardFileInfo& info) {
  Sha256 hash;
  TY_RETURN_IF_ERROR(file.readThrough([&](std::span<const std::byte> part) { hash.update(part); }));
  if (hash.hexDigest() != info.sha256) {
    return damaged(file.path(),
                   fmt::format("SHA-256 {}, expected {}", hash.hexDigest(), info.sha256));
  }
  return absl::OkStatus();
}

std::string label(std::string_view variable, std::string_view slot) {
  return fmt::format("{}{}{}", variable, slot.empty() ? "" : "/", slot);
}

const ManifestVariable* findVariable(const Manifest& manifest, std::string_view name) {
  const auto found = std::find_if(manifest.variables.begin(), manifest.variables.end(),
                                  [&](const ManifestVariable& v) { return v.name == name; });
  return found == manifest.variables.end() ? nullptr : &*found;
}

}  // namespace

Status verifyFiles(const std::string& dir, const Manifest& manifest) {
  TY_ASSIGN_OR_RETURN(Storage* const storage, storageOf(dir));
  TY_ASSIGN_OR_RETURN(const std::vector<Manifest> chain, chainOf(dir, manifest));
  for (const Manifest& one : chain) {
    for (const ShardFileInfo& file : one.files) {
      const std::string path = fmt::format("{}/{}", dir, file.name);
      TY_ASSIGN_OR_RETURN(const auto opened, openOfSize(path, file));
      if (!storage->vouches()) TY_RETURN_IF_ERROR(checkContent(*opened, file));
    }
  }
  return absl::OkStatus();
}

Status CheckpointReader::OpenFile::verified() const {
  std::call_once(once_, [this] { found_ = checkContent(*file, info); });
  return found_;
}

Status CheckpointReader::OpenFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  TY_RETURN_IF_ERROR(verified());
  return file->read(offset, out);
}

StatusOr<CheckpointReader> CheckpointReader::open(const std::string& dir, const Manifest& manifest,
                                                  Verify verify) {
  CheckpointReader reader;
  reader.manifest_ = manifest;
  for (const ShardFileInfo& file : manifest.files)
    TY_RETURN_IF_ERROR(reader.addFile(dir, file, verify));
  TY_RETURN_IF_ERROR(reader.checkCoverage());
  TY_RETURN_IF_ERROR(reader.checkTables());
  if (manifest.base.empty()) return reader;
  TY_ASSIGN_OR_RETURN(const std::vector<Manifest> chain, chainOf(dir, manifest));
  TY_ASSIGN_OR_RETURN(CheckpointReader base, open(dir, chain[1], verify));
  reader.base_ = std::make_shared<const CheckpointReader>(std::move(base));
  return reader;
}

Status CheckpointReader::addFile(const std::string& dir, const ShardFileInfo& info, Verify verify) {
  auto file = std::make_shared<OpenFile>();
  const std::string path = fmt::format("{}/{}", dir, info.name);
  file->info = info;
  TY_ASSIGN_OR_RETURN(file->file, openOfSize(path, info));
  if (verify == Verify::kAll) TY_RETURN_IF_ERROR(file->verified());
  StatusOr<SafetensorsHeader> read = readSafetensorsHeader(*file->file);
  if (!read.ok()) TY_RETURN_IF_ERROR(file->verified());  // that it is damaged says more
  TY_ASSIGN_OR_RETURN(const SafetensorsHeader header, std::move(read));
  for (const SafetensorsEntry& entry : header.entries) {
    if (const auto of_table = parseTableArrayName(entry.name)) {
      TY_RETURN_IF_ERROR(annotate(addTableArray(*of_table, entry, header.data_start), path));
      continue;
    }
    const auto name = parseTensorName(entry.name);
    if (!name)
      return damaged(path, fmt::format("tensor '{}': not variable[begin:end]", entry.name));
    const ManifestVariable* variable = findVariable(manifest_, name->variable);
    if (variable == nullptr || name->end > elements(*variable)) {
      return damaged(path, fmt::format("tensor '{}': not in the manifest", entry.name));
    }
    if (entry.dtype != variable->dtype ||
        entry.shape != std::vector<std::int64_t>{name->end - name->begin}) {
      return damaged(path,
                     fmt::format("tensor '{}': dtype or shape differs from its name", entry.name));
    }
    if (!name->slot.empty() && std::find(manifest_.slots.begin(), manifest_.slots.end(),
                                         name->slot) == manifest_.slots.end()) {
      return damaged(path, fmt::format("tensor '{}': the manifest has no such slot", entry.name));
    }
    pieces_[{name->variable, name->slot}].push_back({.begin = name->begin,
                                                     .end = name->end,
                                                     .file = files_.size(),
                                                     .offset = header.data_start + entry.begin});
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

Status CheckpointReader::checkCoverage() {
  for (const ManifestVariable& variable : manifest_.variables) {
    pieces_.try_emplace({variable.name, ""});  // weights must be there, slots may be
  }
  for (auto& [key, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    const std::int64_t total = elements(*findVariable(manifest_, key.first));
    std::int64_t at = 0;
    for (const Piece& piece : pieces) {
      if (piece.begin != at) break;
      at = piece.end;
    }
    const bool overlaps =
        std::adjacent_find(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
          return a.end > b.begin;
        }) != pieces.end();
    if (overlaps) {
      return damaged(manifest_.fileName(), fmt::format("{}: stands in its files more than once",
                                                       label(key.first, key.second)));
    }
    if (at != total) {
      return damaged(manifest_.fileName(),
                     fmt::format("{}: element {} of {} is in none of its files",
                                 label(key.first, key.second), at, total));
    }
  }
  return absl::OkStatus();
}

bool CheckpointReader::hasSlot(const std::string& variable, const std::string& slot) const {
  return !slot.empty() && pieces_.contains({variable, slot});
}

Status CheckpointReader::readBytes(const std::string& variable, const std::string& slot,
                                   std::int64_t begin, std::span<std::byte> out) const {
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size() / 4);
  const auto found = pieces_.find({variable, slot});
  if (out.size() % 4 != 0 || begin < 0 || found == pieces_.end() ||
      end > found->second.back().end) {
    return absl::NotFoundError(
        fmt::format("{}: no {}[{}:{}]", manifest_.fileName(), label(variable, slot), begin, end));
  }
  const std::vector<Piece>& pieces = found->second;
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), begin,
                                [](std::int64_t at, const Piece& p) { return at < p.end; });
  while (begin < end) {
    const std::int64_t n = std::min(end, piece->end) - begin;
    const OpenFile& file = *files_[piece->file];
    const auto bytes = static_cast<std::size_t>(n) * 4;
    TY_RETURN_IF_ERROR(file.read(
        piece->offset + static_cast<std::uint64_t>(begin - piece->begin) * 4, out.first(bytes)));
    out = out.subspan(bytes);
    begin += n;
    ++piece;
  }
  return absl::OkStatus();
}

Status CheckpointReader::read(const std::string& variable, const std::string& slot,
                              std::int64_t begin, std::span<float> out) const {
  const ManifestVariable* info = findVariable(manifest_, variable);
  if (info != nullptr && info->dtype != "F32") {
    return invalidInput(variable, fmt::format("has dtype {}, expected F32", info->dtype));
  }
  return readBytes(variable, slot, begin, std::as_writable_bytes(out));
}

}  // namespace trainyard::runtime
