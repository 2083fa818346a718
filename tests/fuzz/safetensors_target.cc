// A shard of a checkpoint: as a header, and as the file of a manifest that knows its digest.
#include <cstring>

#include "base/core/check.h"
#include "base/security/sha256.h"
#include "fmt/format.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz {
namespace {

constexpr std::size_t kLengthBytes = 8;

bool same(const runtime::SafetensorsHeader& a, const runtime::SafetensorsHeader& b) {
  if (a.metadata != b.metadata || a.entries.size() != b.entries.size()) return false;
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    const runtime::SafetensorsEntry& x = a.entries[i];
    const runtime::SafetensorsEntry& y = b.entries[i];
    if (x.name != y.name || x.dtype != y.dtype || x.shape != y.shape || x.begin != y.begin ||
        x.end != y.end) {
      return false;
    }
  }
  return true;
}

void decode(std::string_view text, std::uint64_t file_size) {
  const auto header = runtime::decodeSafetensorsHeader(text, file_size);
  if (!header.ok()) {
    TY_CHECK(absl::IsInvalidArgument(header.status()), "a header that is wrong is named so");
    return;
  }
  std::uint64_t bytes = 0;
  for (const runtime::SafetensorsEntry& entry : header->entries) {
    TY_CHECK(entry.begin == bytes && entry.end > entry.begin, "there are no holes");
    bytes = entry.end;
  }
  TY_CHECK(header->data_start + bytes == file_size, "the arrays fill the file");
  const auto written = runtime::encodeSafetensorsHeader(header->metadata, header->entries);
  TY_CHECK(written.ok(), "what was read can be written");
  const auto again = runtime::decodeSafetensorsHeader(
      std::string_view(*written).substr(kLengthBytes), written->size() + bytes);
  TY_CHECK(again.ok() && same(*header, *again), "what was written is what was read");
}

runtime::Manifest manifestOf(const MemoryFile& file, std::string_view content) {
  runtime::Manifest manifest;
  manifest.variables = {{"a", {4}, "F32"}, {"b", {2, 3}, "F32"}, {"n", {}, "I32"}};
  manifest.slots = {"m"};
  manifest.files = {{file.name(), content.size(), sha256Hex(content)}};
  return manifest;
}

void readAll(const runtime::CheckpointReader& reader) {
  for (const runtime::ManifestVariable& variable : reader.manifest().variables) {
    std::vector<std::byte> bytes(4 * static_cast<std::size_t>(elements(variable)));
    TY_CHECK(reader.readBytes(variable.name, "", 0, bytes).ok(), "all weights are there");
    if (!reader.hasSlot(variable.name, "m")) continue;
    TY_CHECK(reader.readBytes(variable.name, "m", 0, bytes).ok(), "slots are whole");
    std::vector<float> one(1);
    TY_CHECK(reader.read(variable.name, "m", 0, one).ok() == (variable.dtype == "F32"),
             "floats are read of floats");
    TY_CHECK(!reader.readBytes(variable.name, "m", 1, bytes).ok(), "nothing is behind the end");
  }
}

std::string file(std::string_view header, std::size_t bytes) {
  std::string text(kLengthBytes, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, sizeof length);
  return text + std::string(header) + std::string(bytes, 'x');
}

}  // namespace

void runSafetensors(std::string_view input) {
  if (input.size() >= kLengthBytes) decode(input.substr(kLengthBytes), input.size());
  std::uint64_t length = 0;
  if (input.size() >= kLengthBytes) std::memcpy(&length, input.data(), sizeof length);
  if (length <= input.size() && input.size() - length >= kLengthBytes) {
    decode(input.substr(kLengthBytes, length), input.size());
  }
  const MemoryFile file(input);
  const auto reader = runtime::CheckpointReader::open(MemoryFile::dir(), manifestOf(file, input));
  if (reader.ok()) {
    readAll(*reader);
  } else {
    TY_CHECK(absl::IsDataLoss(reader.status()), "a file that is wrong is damaged");
  }
}

std::vector<std::string> safetensorsSeeds() {
  const std::string a = R"("a[0:4]":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})";
  const std::string b = R"("b[0:6]":{"dtype":"F32","shape":[6],"data_offsets":[16,40]})";
  const std::string n = R"("n[0:1]":{"dtype":"I32","shape":[1],"data_offsets":[40,44]})";
  const std::string slot = R"("a[0:4]/m":{"dtype":"F32","shape":[4],"data_offsets":[44,60]})";
  const std::string meta = R"("__metadata__":{"format":"pt"})";
  const std::string all = fmt::format("{},{},{}", a, b, n);
  const std::string huge = R"("a[0:4]":{"dtype":"F32","shape":[4611686018427387904],)"
                           R"("data_offsets":[0,18446744073709551615]})";
  std::vector<std::string> seeds = {"", file("{}", 0), file("{", 0), file("[]", 0)};
  for (const auto& [members, bytes] : std::vector<std::pair<std::string, std::size_t>>{
           {all, 44},
           {fmt::format("{},{},{}", meta, all, slot), 60},
           {a, 16},
           {a + "," + b, 40},
           {all, 43},
           {R"("__metadata__":5)", 0},
           {R"("__metadata__":{"a":5})", 0},
           {R"("a[0:4]":5)", 16},
           {R"("a[0:4]":{"dtype":"F64"})", 16},
           {R"("a[0:4]":{"dtype":"F32"})", 16},
           {R"("a[0:4]":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]})", 16},
           {R"("a[0:4]":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})", 0},
           {R"("a[0:4]":{"dtype":"F32","shape":[9223372036854775808]})", 0},
           {R"("a[0:4]":{"dtype":"F32","shape":[4]})", 16},
           {R"("a[0:4]":{"dtype":"F32","shape":[4],"data_offsets":[16,0]})", 16},
           {R"("a[0:4]":{"dtype":"F32","shape":[4],"data_offsets":[4,20]})", 20},
           {huge, 16},
           {R"("c[0:4]":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})", 16},
           {R"("a[0:4]":{"dtype":"I32","shape":[4],"data_offsets":[0,16]})", 16},
           {R"("a[0:4]/v":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})", 16},
           {R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]})", 16},
           {R"("a[0:3]":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
            R"("a[2:4]":{"dtype":"F32","shape":[2],"data_offsets":[12,20]})",
            20}}) {
    seeds.push_back(file("{" + members + "}", bytes));
  }
  std::string lying = file("{}", 0);
  std::memset(lying.data(), 0xff, kLengthBytes);
  seeds.push_back(lying);
  return seeds;
}

}  // namespace trainyard::fuzz
