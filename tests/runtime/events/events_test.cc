#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/core/strings.h"
#include "nlohmann/json.hpp"
#include "runtime/events/metrics_writer.h"

namespace trainyard::runtime {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr UnixMillis kNow = 1'700'000'000'123;

class TempDir {
 public:
  TempDir() {
    std::string pattern = testing::TempDir() + "/events.XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string contentOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// --- A reader that shares nothing with the writer ---

// CRC-32C bit by bit, from its definition.
std::uint32_t slowCrc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const std::uint32_t in = (static_cast<unsigned char>(c) >> bit ^ crc) & 1;
      crc >>= 1;
      if (in != 0) crc ^= 0x82F63B78u;
    }
  return ~crc;
}

template <typename T>
T take(std::string_view& from) {
  T value{};
  EXPECT_GE(from.size(), sizeof(T));
  if (from.size() < sizeof(T)) return value;
  std::memcpy(&value, from.data(), sizeof(T));
  from.remove_prefix(sizeof(T));
  return value;
}

std::uint32_t unmask(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xA282EAD8u;
  return rotated << 15 | rotated >> 17;
}

std::vector<std::string> readRecords(std::string_view bytes) {
  std::vector<std::string> records;
  while (!bytes.empty()) {
    const std::string_view length_bytes = bytes.substr(0, 8);
    const auto length = take<std::uint64_t>(bytes);
    EXPECT_EQ(unmask(take<std::uint32_t>(bytes)), slowCrc32c(length_bytes));
    if (length > bytes.size()) {
      ADD_FAILURE() << "record of " << length << " bytes beyond the end";
      break;
    }
    records.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
    EXPECT_EQ(unmask(take<std::uint32_t>(bytes)), slowCrc32c(records.back()));
  }
  return records;
}

std::uint64_t takeVarint(std::string_view& from) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = take<std::uint8_t>(from);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) break;
  }
  return value;
}

// Fields of a protobuf message: numbers as raw bits, the rest as bytes.
struct Field {
  std::uint64_t number = 0;
  std::string bytes;
};
std::multimap<std::uint64_t, Field> fieldsOf(std::string_view message) {
  std::multimap<std::uint64_t, Field> fields;
  while (!message.empty()) {
    const std::uint64_t key = takeVarint(message);
    Field field;
    switch (key & 7) {
      case 0:
        field.number = takeVarint(message);
        break;
      case 1:
        field.number = take<std::uint64_t>(message);
        break;
      case 5:
        field.number = take<std::uint32_t>(message);
        break;
      case 2: {
        const std::uint64_t length = takeVarint(message);
        field.bytes = std::string(message.substr(0, length));
        message.remove_prefix(std::min<std::size_t>(length, message.size()));
        break;
      }
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return fields;
    }
    fields.emplace(key >> 3, field);
  }
  return fields;
}

struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string file_version;
  std::optional<std::uint64_t> session_status;
  std::map<std::string, float> scalars;
};

Event parseEvent(const std::string& record) {
  Event event;
  for (const auto& [number, field] : fieldsOf(record)) {
    if (number == 1) event.wall_time = std::bit_cast<double>(field.number);
    if (number == 2) event.step = static_cast<std::int64_t>(field.number);
    if (number == 3) event.file_version = field.bytes;
    if (number == 7) event.session_status = fieldsOf(field.bytes).find(1)->second.number;
    if (number != 5) continue;
    for (const auto& [one, value] : fieldsOf(field.bytes)) {
      EXPECT_EQ(one, 1u);
      const auto parts = fieldsOf(value.bytes);
      event.scalars[parts.find(1)->second.bytes] =
          std::bit_cast<float>(static_cast<std::uint32_t>(parts.find(2)->second.number));
    }
  }
  return event;
}

std::vector<fs::path> eventFiles(const fs::path& job_dir) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(job_dir / "events"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Event> eventsIn(const fs::path& file) {
  std::vector<Event> events;
  for (const std::string& record : readRecords(contentOf(file)))
    events.push_back(parseEvent(record));
  return events;
}

std::unique_ptr<MetricsWriter> openWriter(const fs::path& dir, std::int64_t first_step = 1) {
  auto writer = MetricsWriter::open(dir, "host-1", kNow, first_step);
  EXPECT_TRUE(writer.ok()) << writer.status();
  return *std::move(writer);
}

TEST(MetricsWriter, WritesWhatAnIndependentReaderFinds) {
  const TempDir dir;
  {
    const auto writer = openWriter(dir.path());
    const Scalar scalars[] = {{"loss", 0.25}, {"learning_rate", 0.001}};
    ASSERT_TRUE(writer->record(7, kNow + 1500, scalars).ok());
    ASSERT_TRUE(writer->scalar(1'000'000'000'000, kNow + 2500, "accuracy", 0.875).ok());
    // Nothing is held back until the writer closes.
    const auto files = eventFiles(dir.path());
    ASSERT_THAT(files, SizeIs(1));
    EXPECT_EQ(files[0].filename(), "events.out.tfevents.1700000000.host-1");
    const auto events = eventsIn(files[0]);
    ASSERT_THAT(events, SizeIs(4));
    EXPECT_EQ(events[0].file_version, "brain.Event:2");
    EXPECT_EQ(events[1].session_status, 1u);
    EXPECT_EQ(events[1].step, 1);
    EXPECT_EQ(events[2].step, 7);
    EXPECT_DOUBLE_EQ(events[2].wall_time, 1'700'000'001.623);
    EXPECT_EQ(events[2].scalars,
              (std::map<std::string, float>{{"loss", 0.25f}, {"learning_rate", 0.001f}}));
    EXPECT_EQ(events[3].step, 1'000'000'000'000);
    EXPECT_EQ(events[3].scalars, (std::map<std::string, float>{{"accuracy", 0.875f}}));
  }
  EXPECT_EQ(contentOf(dir.path() / "metrics.jsonl"),
            "{\"step\":7,\"loss\":0.25,\"learning_rate\":0.001,\"time\":1700000001.623}\n"
            "{\"step\":1000000000000,\"accuracy\":0.875,\"time\":1700000002.623}\n");
}

TEST(MetricsWriter, WhatIsNotFiniteStaysReadable) {
  const TempDir dir;
  const auto writer = openWriter(dir.path());
  const Scalar scalars[] = {{"loss", std::numeric_limits<double>::quiet_NaN()},
                            {"eval_loss", std::numeric_limits<double>::infinity()}};
  ASSERT_TRUE(writer->record(1, kNow, scalars).ok());
  const auto line = nlohmann::json::parse(contentOf(dir.path() / "metrics.jsonl"));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["eval_loss"].is_null());
  const auto event = eventsIn(eventFiles(dir.path())[0]).back();
  EXPECT_TRUE(std::isnan(event.scalars.at("loss")));
  EXPECT_TRUE(std::isinf(event.scalars.at("eval_loss")));
}

TEST(MetricsWriter, EachStartHasAnEventFileAndContinuesTheLines) {
  const TempDir dir;
  for (int start = 0; start < 3; ++start) {  // all within one second
    const auto writer = openWriter(dir.path(), 1 + 10 * start);
    ASSERT_TRUE(writer->scalar(1 + 10 * start, kNow, "loss", start).ok());
  }
  const auto files = eventFiles(dir.path());
  ASSERT_THAT(files, SizeIs(3));
  for (int start = 0; start < 3; ++start) {
    const auto events = eventsIn(files[start]);
    ASSERT_THAT(events, SizeIs(3)) << files[start];
    EXPECT_EQ(events[1].session_status, 1u);
    EXPECT_EQ(events[1].step, 1 + 10 * start);
    EXPECT_EQ(events[2].scalars.at("loss"), static_cast<float>(start));
  }
  const std::string content = contentOf(dir.path() / "metrics.jsonl");
  const auto lines = split(content, '\n');
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(std::string(lines[2]), HasSubstr("\"step\":21"));
}

TEST(MetricsWriter, CutsOffALineThatACrashLeftUnfinished) {
  for (const std::string& whole : {std::string(), std::string("{\"step\":1}\n")}) {
    const TempDir dir;
    std::ofstream(dir.path() / "metrics.jsonl")
        << whole << "{\"step\":2," << std::string(9000, ' ');
    const auto writer = openWriter(dir.path(), 2);
    EXPECT_EQ(contentOf(dir.path() / "metrics.jsonl"), whole);
    ASSERT_TRUE(writer->scalar(2, kNow, "loss", 1).ok());
    EXPECT_THAT(contentOf(dir.path() / "metrics.jsonl"),
                testing::StartsWith(whole + "{\"step\":2,\"loss\":1.0,"));
  }
}

// A limit on the size of files stands in for a full disk: writes come short, then fail.
TEST(MetricsWriter, AFullDiskIsAStatusAndLeavesWholeRecords) {
  const TempDir dir;
  const auto writer = openWriter(dir.path());
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  int written = 0;
  Status status;
  for (; written < 1000 && status.ok(); ++written)
    status = writer->scalar(written, kNow, "loss", 1);
  const Status again = writer->scalar(written, kNow, "loss", 1);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, old_handler);

  ASSERT_FALSE(status.ok());
  EXPECT_FALSE(again.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("write " + dir.path().string()));
  ASSERT_TRUE(writer->scalar(5000, kNow, "loss", 2).ok()) << "there is room again";
  const auto events = eventsIn(eventFiles(dir.path())[0]);
  EXPECT_EQ(events.back().step, 5000);
  const std::string content = contentOf(dir.path() / "metrics.jsonl");
  const auto lines = split(content, '\n');
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    EXPECT_FALSE(nlohmann::json::parse(lines[i], nullptr, false).is_discarded()) << lines[i];
  }
  EXPECT_EQ(nlohmann::json::parse(lines[lines.size() - 2])["step"], 5000);
}

TEST(MetricsWriter, ErrorsNameTheFile) {
  const TempDir dir;
  fs::create_directory(dir.path() / "metrics.jsonl");
  const auto blocked = MetricsWriter::open(dir.path(), "h", kNow, 1);
  EXPECT_THAT(std::string(blocked.status().message()), HasSubstr("metrics.jsonl"));
  const TempDir other;
  std::ofstream(other.path() / "events") << "a file";
  const auto no_folder = MetricsWriter::open(other.path(), "h", kNow, 1);
  EXPECT_THAT(std::string(no_folder.status().message()), HasSubstr("events"));
}

TEST(MetricsWriter, AHostNameCannotLeaveTheFolder) {
  const TempDir dir;
  ASSERT_TRUE(MetricsWriter::open(dir.path(), "../x", kNow, 1).ok());
  EXPECT_EQ(eventFiles(dir.path())[0].filename(), "events.out.tfevents.1700000000..._x");
}

}  // namespace
}  // namespace trainyard::runtime
