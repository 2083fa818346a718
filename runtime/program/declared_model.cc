#include "runtime/program/declared_model.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/core/clock.h"
#include "base/core/strings.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/catalog/catalog.h"
#include "runtime/checkpoint/safetensors_file.h"
#include "runtime/data/sample_stream.h"
#include "runtime/storage/storage.h"

namespace trainyard::runtime {
namespace {

using Json = nlohmann::ordered_json;
using session::Declaration;
using session::DeclaredVariable;

constexpr Duration kLook = std::chrono::milliseconds(50);
constexpr Duration kRemoteLook = std::chrono::seconds(1);
constexpr const char* kKey = "trainyard.declaration";

Status damaged(const std::string& path, std::string_view what) {
  return absl::DataLossError(fmt::format("{}: {}", path, what));
}

std::optional<ElementType> elementType(const std::string& name) {
  for (int type = 0; type < kElementTypes; ++type) {
    if (nameOf(static_cast<ElementType>(type)) == name) return static_cast<ElementType>(type);
  }
  return std::nullopt;
}

StatusOr<Declaration> fromJson(const std::string& path, const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Declaration declaration;
  try {
    json.at("samples").get_to(declaration.samples);
    json.at("evalSamples").get_to(declaration.eval_samples);
    json.at("ownUpdate").get_to(declaration.own_update);
    json.at("hasState").get_to(declaration.has_state);
    for (const Json& entry : json.at("variables")) {
      DeclaredVariable variable;
      entry.at("name").get_to(variable.name);
      entry.at("shape").get_to(variable.shape);
      const auto type = elementType(entry.at("type").get<std::string>());
      if (!type) return damaged(path, fmt::format("{}: unknown type", variable.name));
      variable.type = *type;
      entry.at("trained").get_to(variable.trainable);
      declaration.variables.push_back(std::move(variable));
    }
  } catch (const Json::exception& error) {
    return damaged(path, fmt::format("{}: {}", kKey, error.what()));
  }
  return declaration;
}

Variable variableOf(const DeclaredVariable& declared) {
  Variable variable;
  variable.name = declared.name;
  variable.shape = declared.shape;
  return variable;
}

std::vector<SafetensorsEntry> entriesOf(const Declaration& declaration) {
  std::vector<SafetensorsEntry> entries;
  for (const DeclaredVariable& variable : declaration.variables) {
    if (variable.trainable)
      entries.push_back({.name = variable.name, .dtype = "F32", .shape = variable.shape});
  }
  return entries;
}

Status readValues(const ReadableFile& file, const SafetensorsHeader& header, DeclaredModel& model) {
  const std::string& path = file.path();
  const std::vector<SafetensorsEntry> wanted = entriesOf(model.declaration);
  if (wanted.size() != header.entries.size())
    return damaged(path, "the arrays are not those of its declaration");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const SafetensorsEntry& entry = header.entries[i];
    if (entry.name != wanted[i].name || entry.dtype != "F32" || entry.shape != wanted[i].shape)
      return damaged(path, fmt::format("array {} is not that of its declaration", entry.name));
    std::vector<float> values((entry.end - entry.begin) / sizeof(float));
    TY_RETURN_IF_ERROR(
        file.read(header.data_start + entry.begin, std::as_writable_bytes(std::span(values))));
    model.layout.values.push_back(std::move(values));
  }
  return absl::OkStatus();
}

}  // namespace

std::string declaredModelPath(const std::string& checkpoint_dir) {
  return checkpoint_dir + "/model.safetensors";
}

Status checkDeclared(const Declaration& declaration) {
  for (const auto& [what, count] : {std::pair("samples", declaration.samples),
                                    std::pair("samples to evaluate", declaration.eval_samples)}) {
    if (count > kMaxSamples)
      return absl::InvalidArgumentError(fmt::format("{} {}, at most {}", count, what, kMaxSamples));
  }
  bool trains = false;
  std::set<std::string_view> names{kGlobalStep};
  for (const DeclaredVariable& variable : declaration.variables) {
    if (!names.insert(variable.name).second) {
      return absl::InvalidArgumentError(
          variable.name == kGlobalStep
              ? fmt::format("variable {}: the name is that of the job's own counter", variable.name)
              : fmt::format("variable {}: declared twice", variable.name));
    }
    trains = trains || variable.trainable;
  }
  return trains ? absl::OkStatus()
                : absl::InvalidArgumentError("no variable is trained: there is nothing to do");
}

std::string declarationJson(const Declaration& declaration) {
  Json json = {{"samples", declaration.samples},
               {"evalSamples", declaration.eval_samples},
               {"ownUpdate", declaration.own_update},
               {"hasState", declaration.has_state}};
  json["variables"] = Json::array();
  for (const DeclaredVariable& variable : declaration.variables) {
    json["variables"].push_back({{"name", variable.name},
                                 {"shape", variable.shape},
                                 {"type", nameOf(variable.type)},
                                 {"trained", variable.trainable}});
  }
  return json.dump();
}

Status writeDeclaredModel(const std::string& path, const Declaration& declaration,
                          const session::SessionMemory& memory) {
  auto header =
      encodeSafetensorsHeader({{kKey, declarationJson(declaration)}}, entriesOf(declaration));
  if (!header.ok()) return annotate(header.status(), path);
  TY_ASSIGN_OR_RETURN(const auto file, createStored(path));
  TY_RETURN_IF_ERROR(file->write(*header));
  for (std::size_t v = 0; v < declaration.variables.size(); ++v) {
    if (declaration.variables[v].trainable) TY_RETURN_IF_ERROR(file->write(memory.value(v)));
  }
  return file->commit();
}

StatusOr<DeclaredModel> readDeclaredModel(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const auto file, openStored(path));
  TY_ASSIGN_OR_RETURN(const SafetensorsHeader header, readSafetensorsHeader(*file));
  const auto text = header.metadata.find(kKey);
  if (text == header.metadata.end()) return damaged(path, "no program of a job has declared it");
  DeclaredModel model;
  TY_ASSIGN_OR_RETURN(model.declaration, fromJson(path, text->second));
  TY_RETURN_IF_ERROR(annotate(checkDeclared(model.declaration), path));
  model.layout.variables.push_back(globalStep());
  model.layout.values.emplace_back();
  for (const DeclaredVariable& variable : model.declaration.variables) {
    if (variable.trainable) model.layout.variables.push_back(variableOf(variable));
  }
  TY_RETURN_IF_ERROR(readValues(*file, header, model));
  return model;
}

StatusOr<DeclaredModel> awaitDeclaredModel(const std::string& path,
                                           const std::function<bool()>& cancelled) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  for (;;) {
    StatusOr<DeclaredModel> model = readDeclaredModel(path);
    if (!absl::IsNotFound(model.status())) return model;
    if (cancelled && cancelled())
      return absl::CancelledError("given up before worker-0's program has declared its model");
    never.wait_for(lock, isRemote(path) ? kRemoteLook : kLook);
  }
}

}  // namespace trainyard::runtime
