#include "runtime/program/session_state.h"

#include <utility>

#include "base/core/check.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {
namespace {

Status writeState(const StepFiles& files, int kept, std::int64_t step,
                  std::span<const std::byte> bytes) {
  TY_ASSIGN_OR_RETURN(const auto file, createStored(files.path(step)));
  TY_RETURN_IF_ERROR(file->write(bytes));
  TY_RETURN_IF_ERROR(file->commit());
  files.prune(kept);
  return absl::OkStatus();
}

}  // namespace

SessionState::SessionState(std::string dir, int kept)
    : files_(std::move(dir), "program-state.step-", ".bin"), kept_(kept) {}

Status SessionState::own(const Status& status) {
  if (failure_.ok()) failure_ = status;
  return status;
}

StatusOr<ProgramState::Saved> SessionState::save(std::int64_t version) {
  TY_CHECK(program_ != nullptr, "a program is asked while it waits");
  StatusOr<session::StateMemory> state = program_->save(version);
  if (!state.ok()) return own(state.status());
  auto owner = std::make_shared<const session::StateMemory>(*std::move(state));
  const std::span<const std::byte> bytes = owner->bytes();
  return Saved{.bytes = bytes, .owner = std::move(owner)};
}

StatusOr<std::span<std::byte>> SessionState::room(std::size_t bytes) {
  room_.reset();
  TY_ASSIGN_OR_RETURN(session::StateMemory room, session::StateMemory::create(bytes));
  room_.emplace(std::move(room));
  return room_->bytes();
}

StatusOr<std::span<std::byte>> SessionState::read(std::int64_t version) {
  const std::string path = files_.path(version);
  const auto file = openStored(path);
  if (!file.ok())
    return annotate(file.status(), fmt::format("the program's state of step {}", version));
  auto into = room((*file)->size());
  if (!into.ok()) return annotate(into.status(), path);
  TY_RETURN_IF_ERROR((*file)->read(0, *into));
  return *into;
}

Status SessionState::load(std::int64_t version) {
  TY_CHECK(program_ != nullptr && room_, "a program is given what is there, while it waits");
  initial_ = false;
  const Status loaded = program_->load(version, *room_);
  room_.reset();
  return loaded.ok() ? loaded : own(loaded);
}

StatusOr<std::function<Status()>> SessionState::keep(std::int64_t version) {
  TY_ASSIGN_OR_RETURN(Saved saved, save(version));
  return [files = files_, kept = kept_, version, saved = std::move(saved)] {
    return writeState(files, kept, version, saved.bytes);
  };
}

Status SessionState::restore(std::int64_t version) {
  const auto step = files_.newest(version);
  if (!step) return absl::OkStatus();
  TY_RETURN_IF_ERROR(read(*step).status());
  return load(*step);
}

}  // namespace trainyard::runtime
