#include <cmath>
#include <string>
#include <utility>

#include "cli/plan/cost_report.h"
#include "cli/plan/distinct_ids.h"
#include "cli/plan/plan_report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::TrainingJob makeJob(const std::string& model, const std::string& strategy, int ps,
                        int workers) {
  v1::TrainingJob job;
  job.mutable_metadata()->set_name("comparison");
  v1::JobSpec& spec = *job.mutable_spec();
  spec.set_strategy("ParameterServer");
  spec.mutable_ps()->set_replicas(ps);
  spec.mutable_worker()->set_replicas(workers);
  spec.mutable_training()->mutable_model()->set_name(model);
  spec.mutable_training()->mutable_placement()->set_strategy(strategy);
  spec.mutable_training()->mutable_optimizer()->set_name("RMSProp");
  spec.mutable_training()->mutable_optimizer()->set_learning_rate(0.001);
  return job;
}

PlanReport reportOf(const v1::TrainingJob& job) {
  auto report = makePlanReport(job);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.value_or(PlanReport());
}

std::string textOf(const v1::TrainingJob& job) {
  return renderPlanText(reportOf(job));
}

// Of one worker with 100 samples, each of which looks up a row in two features.
TEST(PlanText, HasTheTables) {
  v1::TrainingJob job = makeJob("wide_and_deep", "Balanced", 2, 1);
  v1::Training& training = *job.mutable_spec()->mutable_training();
  training.mutable_model()->add_hidden(8);
  training.set_batch_size(100);
  v1::TableSpec& table = *training.add_tables();
  table.set_name("user");
  table.add_features("user");
  table.add_features("friend");
  table.set_dim(16);
  table.mutable_rows()->set_max(1000);
  table.mutable_optimizer()->set_name("Adagrad");
  table.mutable_optimizer()->set_learning_rate(0.1);
  const PlanReport report = reportOf(job);
  ASSERT_EQ(report.tables.tables.size(), 1U);
  EXPECT_EQ(report.tables.tables[0].row_bytes, 16 + 2 * 16 * 4 + 16);
  EXPECT_EQ(report.tables.tables[0].most.in, 200 * (20 + 64));
  EXPECT_EQ(report.tables.tables[0].most.out, 200 * 64);
  EXPECT_FALSE(report.tables.expected);
  EXPECT_THAT(
      renderPlanText(report),
      HasSubstr("table  dim  bytes a row  rows at most    bytes  in per step  out per step\n"
                "user    16          160         1,000  160,000       16,800        "
                "12,800\n"));
  EXPECT_THAT(
      renderPlanText(report),
      HasSubstr("rows on    share   bytes  replicas  in per step  out per step  to replicas\n"
                "ps0      50.00 %  80,000    80,000        8,400         6,400        7,600\n"
                "ps1      50.00 %  80,000    80,000        8,400         6,400        7,600\n"));
  EXPECT_EQ(renderPlanJson(report)["tables"][0]["rowBytes"], 160);
  EXPECT_TRUE(renderPlanJson(report)["tables"][0]["expectedBytesInPerStep"].is_null());
  EXPECT_TRUE(renderPlanJson(report)["tables"][0]["expectedRows"].is_null());
  EXPECT_EQ(renderPlanJson(report)["tables"][0]["replicaBytesPerStep"], 200 * (12 + 64));
  job.mutable_spec()->mutable_ps()->set_replicas(1);
  EXPECT_THAT(renderPlanText(reportOf(job)),
              HasSubstr("\nworker 0 keeps the only server's replicas: 160,000 bytes at most\n"));
  training.set_chunk_replicas("Never");
  EXPECT_EQ(reportOf(job).tables.worker_replica_bytes, 0);
  EXPECT_EQ(reportOf(job).tables.tables[0].replicated, 0);
  table.mutable_rows()->set_expected(500);
  EXPECT_THAT(renderPlanText(reportOf(job)),
              HasSubstr("\ntable user: 500 rows are expected, 80,000 bytes\n"));
  EXPECT_EQ(renderPlanJson(reportOf(job))["tables"][0]["expectedBytes"], 80'000);
}

// Of a thousand draws from two ids both are there.
TEST(PlanText, ExpectsIdsOfMadeUpDataToRepeat) {
  v1::TrainingJob job = makeJob("wide_and_deep", "Balanced", 3, 1);
  v1::Training& training = *job.mutable_spec()->mutable_training();
  training.mutable_model()->add_hidden(8);
  training.set_batch_size(1'000);
  training.set_wire_type("Float16");
  training.mutable_data()->set_format("synthetic_ctr");
  for (const auto& [name, ids] : {std::pair("one", 1), {"two", 2}}) {
    v1::ColumnSpec& column = *training.mutable_data()->add_columns();
    column.set_name(name);
    column.set_kind("Id");
    column.set_ids(ids);
    v1::TableSpec& table = *training.add_tables();
    table.set_name(name);
    table.add_features(name);
    table.set_dim(16);
    table.mutable_rows()->set_max(1000);
    table.mutable_optimizer()->set_name("SGD");
    table.mutable_optimizer()->set_learning_rate(0.1);
  }
  const PlanReport report = reportOf(job);
  ASSERT_TRUE(report.tables.expected);
  EXPECT_EQ(report.tables.tables[0].expected->in, 20 + 32);
  EXPECT_EQ(report.tables.tables[1].expected->out, 2 * 32);
  ASSERT_EQ(report.tables.servers.size(), 3U);
  EXPECT_DOUBLE_EQ(report.tables.servers[0].share, 6 / 16.0);
  EXPECT_EQ(report.tables.servers[1].step.out, std::llround(3 * 32 * 5 / 16.0));
  EXPECT_THAT(renderPlanText(report), HasSubstr("as the made-up ids are expected to repeat"));
  EXPECT_EQ(renderPlanJson(report)["tables"][0]["expectedBytesInPerStep"], 52);
  training.mutable_data()->mutable_columns(1)->set_kind("Ids");
  EXPECT_FALSE(reportOf(job).tables.expected);
}

// Of equal ids n draws leave out each with (1 - 1/ids)^n; the others summed one by one.
TEST(ExpectedDistinct, IsTheSumOverAllIds) {
  EXPECT_NEAR(expectedDistinct(1000, 0, 500), 1000 * (1 - std::pow(0.999, 500)), 1e-6);
  EXPECT_DOUBLE_EQ(expectedDistinct(1, kIdExponent, 7), 1);
  EXPECT_DOUBLE_EQ(expectedDistinct(100, kIdExponent, 0), 0);
  EXPECT_NEAR(expectedDistinct(1000, kIdExponent, 1), 1, 1e-9);
  constexpr std::int64_t kIds = 300'000;
  for (const std::int64_t draws : {100, 10'000, 1'000'000}) {
    double all = 0, expected = 0;
    for (std::int64_t k = 1; k <= kIds; ++k) all += std::pow(double(k), -kIdExponent);
    for (std::int64_t k = 1; k <= kIds; ++k)
      expected += 1 - std::pow(1 - std::pow(double(k), -kIdExponent) / all, double(draws));
    EXPECT_NEAR(expectedDistinct(kIds, kIdExponent, draws) / expected, 1, 1e-4) << draws;
  }
}

TEST(PlanText, OfDlrmHasBottomAndTopLayers) {
  v1::TrainingJob job = makeJob("dlrm", "Balanced", 2, 1);
  v1::Training& training = *job.mutable_spec()->mutable_training();
  training.mutable_model()->add_bottom_hidden(16);
  training.mutable_model()->add_hidden(8);
  training.mutable_data()->add_columns()->set_kind("Number");
  v1::TableSpec& table = *training.add_tables();
  table.set_name("user");
  table.add_features("user");
  table.add_features("friend");
  table.set_dim(16);
  table.mutable_rows()->set_max(1000);
  const std::string text = textOf(job);
  EXPECT_THAT(text, HasSubstr("\nbottom1_wei  [1,16]"));
  EXPECT_THAT(text, HasSubstr("\nhidden1_wei  [19,8]")) << "16 + 3 products";
  EXPECT_THAT(text, HasSubstr("\nuser    16 "));
}

TEST(PlanText, OfAProgramsTablesNobodyKnowsWhatAStepMoves) {
  v1::TrainingJob job = makeJob("program", "Balanced", 2, 1);
  v1::TableSpec& table = *job.mutable_spec()->mutable_training()->add_tables();
  table.set_name("user");
  table.set_dim(16);
  table.mutable_rows()->set_max(1000);
  runtime::Variable step, weights;
  step.name = "global_step";
  step.dtype = runtime::DType::kInt32;
  step.trainable = false;
  weights.name = "w";
  weights.shape = {3, 4};
  const auto report = makePlanReport(job, {step, weights});
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string text = renderPlanText(*report);
  EXPECT_THAT(text, HasSubstr("what a step moves is the program's to say"));
  EXPECT_THAT(text, HasSubstr("\nuser    16 "));
}

TEST(PlanText, MnistRoundRobin) {
  EXPECT_EQ(textOf(makeJob("mnist_cnn", "RoundRobin", 2, 7)),
            R"(comparison: mnist_cnn, 8 variables, 3,274,634 parameters, 13,098,536 bytes
placement RoundRobin on 2 ps, 7 workers

variable     shape             bytes  parts
global_step  []                    4  ps0 4
conv1_wei    [5,5,1,32]        3,200  ps1 3,200
conv1_bia    [32]                128  ps0 128
conv2_wei    [5,5,32,64]     204,800  ps1 204,800
conv2_bia    [64]                256  ps0 256
fc1_wei      [3136,1024]  12,845,056  ps1 12,845,056
fc1_bia      [1024]            4,096  ps0 4,096
fc2_wei      [1024,10]        40,960  ps1 40,960
fc2_bia      [10]                 40  ps0 40

bytes held        share  in per step  out per step       memory
ps0 4,524        0.03 %       31,640        31,640   52,412,224
ps1 13,094,016  99.97 %   91,658,112    91,658,112  104,770,208

hot share              99.97 % (even: 50.00 %)
max/min                2,894
slowdown against even  1.999
chunks                 35, 4,520 to 401,408 bytes each
memory of a worker     26,197,072

Per step: gradients that all workers push and weights that they pull; headers
(below 0.1 %) and global_step, which travels in them, are not counted.
Memory of a ps, at most: two versions of its weights, 2 optimizer slots,
replicas of another's part;
of it 3 x bytes held only where steps go on while a checkpoint is written.
Memory of a worker: the weights and the gradients, besides activations and
libraries.
)");
}

TEST(PlanText, Vgg19RoundRobinAndFixedSize) {
  EXPECT_THAT(textOf(makeJob("vgg19", "RoundRobin", 2, 7)),
              AllOf(HasSubstr("ps0 58,788 "), HasSubstr("ps1 574,610,176 ")));
  EXPECT_THAT(textOf(makeJob("vgg19", "FixedSize", 2, 7)),
              AllOf(HasSubstr("ps0 273,988,564 "), HasSubstr("ps1 300,680,400 "),
                    HasSubstr("placement FixedSize(2, axis 0) on 2 ps")));
}

TEST(PlanText, FitsEightyColumnsAndHasNoTrailingSpace) {
  for (const std::string strategy : {"RoundRobin", "FixedSize", "MinMax", "Balanced"}) {
    for (const int ps : {1, 2, 5, 64}) {
      const std::string text = textOf(makeJob("vgg19", strategy, ps, 100));
      std::size_t begin = 0;
      while (begin < text.size()) {
        const std::size_t end = text.find('\n', begin);
        ASSERT_NE(end, std::string::npos) << "ends with a newline";
        const std::string line = text.substr(begin, end - begin);
        EXPECT_LE(line.size(), 80u) << line;
        EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
        begin = end + 1;
      }
    }
  }
}

TEST(PlanText, ManyPartsAreCounted) {
  v1::TrainingJob job = makeJob("mnist_cnn", "FixedSize", 8, 1);
  job.mutable_spec()->mutable_training()->mutable_placement()->mutable_fixed_size()->set_shards(64);
  EXPECT_THAT(textOf(job), AllOf(HasSubstr("64 parts on ps0-7"), HasSubstr("8 ps, 1 worker\n")));
}

TEST(PlanText, APsThatHoldsNothing) {
  EXPECT_THAT(textOf(makeJob("mnist_cnn", "RoundRobin", 20, 2)),
              HasSubstr("none (a ps holds nothing)"));
}

// 7 workers x (pull + push), the comparison's 0.063 and 183.3 MB per step.
TEST(PlanReport, TrafficPerStep) {
  const PlanReport report = reportOf(makeJob("mnist_cnn", "RoundRobin", 2, 7));
  EXPECT_EQ(report.ps[0].in_per_step, 7 * 4'520);
  EXPECT_EQ(report.ps[1].out_per_step, 7 * 13'094'016);
  EXPECT_NEAR(double(report.ps[1].in_per_step + report.ps[1].out_per_step) / 1e6, 183.3, 0.05);
  EXPECT_NEAR(*report.max_to_min, 2894, 0.5);
  EXPECT_NEAR(report.slowdown, 1.999, 5e-4);
}

// Workers and servers send each other 16 bits, servers each other 32.
TEST(PlanReport, HalfTheTrafficOf16Bits) {
  v1::TrainingJob job = makeJob("mnist_cnn", "RoundRobin", 2, 7);
  const PlanReport wide = reportOf(job);
  for (const char* type : {"Float16", "BFloat16"}) {
    job.mutable_spec()->mutable_training()->set_wire_type(type);
    const PlanReport report = reportOf(job);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(2 * report.ps[i].in_per_step, wide.ps[i].in_per_step);
      EXPECT_EQ(2 * report.ps[i].out_per_step, wide.ps[i].out_per_step);
      EXPECT_EQ(report.ps[i].replica_in_per_step, wide.ps[i].replica_in_per_step);
      EXPECT_EQ(report.ps[i].memory(), wide.ps[i].memory());
    }
    runtime::CostInput input;
    input.bits_per_second = 1e9;
    const runtime::JobSeconds halved = predictJob(report, input);
    EXPECT_DOUBLE_EQ(2 * halved.worker.out, predictJob(wide, input).worker.out);
    EXPECT_DOUBLE_EQ(halved.communication, (7 * 2 + 4) * 3'273'504 * 8 / 1e9) << "means: 32 bits";
  }
}

// Each server sends the mean gradient of its chunks to the next one, which keeps replicas of them.
TEST(PlanReport, ReplicasOfTheNextServer) {
  v1::TrainingJob job = makeJob("mnist_cnn", "RoundRobin", 2, 7);
  job.mutable_spec()->mutable_training()->mutable_optimizer()->set_name("SGD");
  const PlanReport report = reportOf(job);
  EXPECT_EQ(report.ps[0].replica_out_per_step, 4'520);
  EXPECT_EQ(report.ps[0].replica_in_per_step, 13'094'016);
  EXPECT_EQ(report.ps[1].replica_out_per_step, 13'094'016);
  EXPECT_EQ(report.ps[1].replica_in_per_step, 4'520);
  EXPECT_EQ(report.ps[0].replicas, 2 * 13'094'016 + 4'520);
  EXPECT_EQ(renderPlanJson(report)["ps"][1]["replicaBytesOutPerStep"], 13'094'016);
  EXPECT_EQ(report.worker_replicas, 0);
  const PlanReport single = reportOf(makeJob("mnist_cnn", "RoundRobin", 1, 7));
  EXPECT_EQ(single.ps[0].replicas, 13'098'536);
  EXPECT_EQ(single.ps[0].replica_in_per_step, 0);
  EXPECT_EQ(single.ps[0].replica_out_per_step, 13'098'536);
  EXPECT_EQ(single.worker_replicas, (2 + single.slots) * 13'098'536);
  EXPECT_NE(
      renderPlanJson(single).dump().find("\"replicas\":" + std::to_string(single.worker_replicas)),
      std::string::npos);
  job.mutable_spec()->mutable_training()->mutable_update()->set_mode("Async");
  EXPECT_EQ(reportOf(job).ps[1].replica_out_per_step, 0);
  job.mutable_spec()->mutable_training()->set_chunk_replicas("Always");
  EXPECT_EQ(reportOf(job).ps[1].replica_out_per_step, 7 * 13'094'016);
  job.mutable_spec()->mutable_training()->mutable_update()->set_mode("Sync");
  job.mutable_spec()->mutable_training()->set_chunk_replicas("Never");
  EXPECT_EQ(reportOf(job).ps[1].replica_out_per_step, 0);
}

TEST(PlanReport, EveryProcessOfAPodIsAWorker) {
  v1::TrainingJob job = makeJob("mnist_cnn", "Balanced", 2, 3);
  job.mutable_spec()->mutable_worker()->set_processes_per_pod(2);
  EXPECT_EQ(reportOf(job).workers, 6);
}

TEST(PlanReport, MemoryCountsVersionsSlotsAndSnapshot) {
  v1::TrainingJob job = makeJob("mlp", "Balanced", 1, 1);
  PlanReport report = reportOf(job);
  const std::int64_t weights = report.trainable_bytes;
  EXPECT_EQ(report.ps[0].weights, 2 * weights);
  EXPECT_EQ(report.ps[0].slots, 2 * weights);
  EXPECT_EQ(report.ps[0].snapshot, 3 * weights);
  EXPECT_EQ(report.worker_weights + report.worker_gradients, 2 * weights);
  EXPECT_EQ(report.ps[0].memory(), (2 + 2 + 3 + 1) * weights) << "gradients for replicas";
  EXPECT_THAT(renderPlanText(report), HasSubstr("of worker 0 "));
  job.mutable_spec()->mutable_training()->mutable_optimizer()->set_name("SGD");
  job.mutable_spec()->mutable_training()->set_chunk_replicas("Never");
  EXPECT_EQ(reportOf(job).ps[0].memory(), 3 * weights);
}

TEST(PlanReport, ErrorsCarryTheFullFieldPath) {
  const auto failure = [](const v1::TrainingJob& job) {
    return std::string(makePlanReport(job).status().message());
  };
  v1::TrainingJob job = makeJob("mnist_cnn", "Balanced", 2, 2);
  v1::PlacementRule* rule =
      job.mutable_spec()->mutable_training()->mutable_placement()->add_rules();
  rule->set_match("fc1_*");
  rule->set_ps(3);
  EXPECT_EQ(failure(job), "spec.training.placement.rules[0].ps: 3 is not below ps.replicas 2");
  EXPECT_THAT(failure(makeJob("mnist_cnn", "Balanced", 0, 2)), HasSubstr("spec.ps.replicas: 0"));
  EXPECT_THAT(failure(makeJob("resnet", "Balanced", 2, 2)), HasSubstr("spec.training.model.name:"));
  v1::TrainingJob unknown = makeJob("mnist_cnn", "Balanced", 2, 2);
  unknown.mutable_spec()->mutable_training()->mutable_optimizer()->set_name("Newton");
  EXPECT_THAT(failure(unknown), HasSubstr("spec.training.optimizer.name:"));
  job.mutable_spec()->set_strategy("AllReduce");
  EXPECT_THAT(failure(job), HasSubstr("spec.strategy: AllReduce"));
  job = makeJob("torchscript", "Balanced", 1, 1);
  EXPECT_THAT(failure(job), HasSubstr("torchscript: the variables of its file are not known"));
  job.mutable_spec()->set_strategy("ParameterServer");
  job.mutable_spec()->clear_training();
  EXPECT_THAT(failure(job), HasSubstr("spec.training: missing"));
}

TEST(PlanJson, HoldsPartsChunksAndTotals) {
  const nlohmann::ordered_json json =
      renderPlanJson(reportOf(makeJob("mnist_cnn", "RoundRobin", 2, 7)));
  EXPECT_EQ(json["ps"][0]["bytes"], 4'524);
  EXPECT_EQ(json["ps"][1]["bytes"], 13'094'016);
  EXPECT_EQ(json["variables"][0]["name"], "global_step");
  EXPECT_EQ(json["variables"][0]["dtype"], "I32");
  EXPECT_EQ(json["variables"][5]["parts"][0]["ps"], 1);
  EXPECT_EQ(json["parameters"], 3'274'634);
  std::int64_t chunk_bytes = 0;
  for (const auto& chunk : json["chunks"]) chunk_bytes += chunk["bytes"].get<std::int64_t>();
  EXPECT_EQ(chunk_bytes, 13'098'536);
  EXPECT_THAT(json.dump(), HasSubstr("\"axis\":0"));
}

TEST(PlanJson, NamesNoAxisForRangesAndNoRatioForAnEmptyPs) {
  const auto balanced = renderPlanJson(reportOf(makeJob("mnist_cnn", "Balanced", 2, 7)));
  EXPECT_THAT(balanced.dump(), HasSubstr("\"axis\":null"));
  EXPECT_THAT(balanced.dump(), Not(HasSubstr("\"maxToMin\":null")));
  const auto sparse = renderPlanJson(reportOf(makeJob("mnist_cnn", "RoundRobin", 20, 2)));
  EXPECT_TRUE(sparse["maxToMin"].is_null());
}

}  // namespace
}  // namespace trainyard::cli
