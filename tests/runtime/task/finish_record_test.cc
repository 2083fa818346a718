// finished.json, whole and damaged.
#include "runtime/task/finish_record.h"

#include <cmath>
#include <limits>

#include "base/process/files.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/base/process/temp_dir.h"

namespace trainyard::runtime {
namespace {

class FinishRecordTest : public testing::Test {
 protected:
  FinishRecordTest() {
    job_.mutable_metadata()->set_uid("uid-1");
    job_.mutable_spec()->set_strategy("ParameterServer");
    evaluation_.set_version(100);
    evaluation_.set_hits(90);
    evaluation_.set_samples(120);
    evaluation_.set_loss_sum(7.5);
    evaluation_.set_auc(0.75);
    evaluation_.set_calibration(1.02);
  }
  std::optional<v1::Evaluation> read(std::int64_t wanted = 100, std::uint32_t created = 3) {
    return readFinish(dir_.path(), job_, created, wanted);
  }
  void record() { ASSERT_TRUE(recordFinish(dir_.path(), job_, 3, 100, evaluation_).ok()); }
  nlohmann::json recorded() {
    return nlohmann::json::parse(readFile(path(), 1 << 16).value_or(""));
  }
  void write(const std::string& text) { ASSERT_TRUE(writeFileAtomically(path(), text, 0644).ok()); }
  std::string path() const { return dir_.path() / "finished.json"; }

  const TempDir dir_;
  v1::TrainingJob job_;
  v1::Evaluation evaluation_;
};

TEST_F(FinishRecordTest, IsReadAsItWasWritten) {
  EXPECT_FALSE(read()) << "there is none";
  record();
  ASSERT_TRUE(read());
  EXPECT_EQ(read()->SerializeAsString(), evaluation_.SerializeAsString());
  EXPECT_TRUE(read(101)) << "the life that ended it is still there";
  EXPECT_FALSE(read(101, 4));
  job_.mutable_metadata()->set_uid("uid-2");
  EXPECT_FALSE(read());
}

// JSON has no word for such a loss.
TEST_F(FinishRecordTest, ALossThatIsNotFiniteDoesNotUndoTheEnd) {
  evaluation_.set_loss_sum(std::numeric_limits<double>::infinity());
  record();
  ASSERT_TRUE(read());
  EXPECT_TRUE(std::isnan(read()->loss_sum()));
  EXPECT_EQ(read()->hits(), 90);
}

bool isRate(const std::string& name) {
  return name == "lossSum" || name == "auc" || name == "calibration";
}

TEST_F(FinishRecordTest, AnythingElseIsNoRecord) {
  for (const char* const text :
       {"", "{", "null", "[]", "7", "{}", "{\"uid\": 5}", "{\"uid\": \"uid-1\"}", "\xff\xfe"}) {
    write(text);
    EXPECT_FALSE(read()) << text;
  }
  record();
  const nlohmann::json whole = recorded();
  const nlohmann::json wrong[] = {
      -1, 1.5, true, "text", nlohmann::json::array(), {{"a", 1}}, 1e300, 18446744073709551615u};
  for (const auto& [name, value] : whole.items()) {
    for (const nlohmann::json& other : wrong) {
      if (value.is_string() == other.is_string() && value.is_string()) continue;
      if (isRate(name) && other.is_number()) continue;
      nlohmann::json damaged = whole;
      damaged[name] = other;
      write(damaged.dump());
      EXPECT_FALSE(read()) << damaged;
    }
    nlohmann::json damaged = whole;
    damaged.erase(name);
    write(damaged.dump());
    // What is told of clicks only, records of others lack.
    EXPECT_EQ(read().has_value(), name == "auc" || name == "calibration") << damaged;
  }
  write(whole.dump());
  EXPECT_TRUE(read());
}

}  // namespace
}  // namespace trainyard::runtime
