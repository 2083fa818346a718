#include "cli/run/memory_check.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::TrainingJob makeJob(const std::string& model, int batch) {
  v1::TrainingJob job;
  v1::JobSpec& spec = *job.mutable_spec();
  spec.set_strategy("ParameterServer");
  spec.mutable_ps()->set_replicas(2);
  spec.mutable_worker()->set_replicas(7);
  spec.mutable_training()->mutable_model()->set_name(model);
  spec.mutable_training()->set_batch_size(batch);
  spec.mutable_training()->mutable_optimizer()->set_name("SGD");
  return job;
}

AvailableMemory memory(std::int64_t bytes) {
  return {bytes, 24'000'000'000, "this machine"};
}

TEST(JobMemory, OfAllTasksTogetherIsNamedPartByPart) {
  const Status status = checkJobMemory(makeJob("vgg19", 32), memory(20'000'000'000));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("vgg19 on this machine needs at least "),
                    HasSubstr("2 parameter servers 2.87 GB"),
                    HasSubstr("7 workers with weights 575 MB, gradients 575 MB, activations of 32 "
                              "samples "),
                    HasSubstr("20 GB of 24 GB are available (this machine)")));
}

TEST(JobMemory, WhatFitsIsLetPass) {
  EXPECT_TRUE(checkJobMemory(makeJob("vgg19", 1), memory(20'000'000'000)).ok());
  EXPECT_TRUE(checkJobMemory(makeJob("mnist_cnn", 128), memory(4'000'000'000)).ok());
  EXPECT_FALSE(checkJobMemory(makeJob("mnist_cnn", 128), memory(100'000'000)).ok());
}

TEST(JobMemory, SimulatedWorkersNeedNoActivations) {
  v1::TrainingJob job = makeJob("vgg19", 32);
  job.mutable_spec()->mutable_training()->mutable_model()->set_simulated_step_seconds(0.5);
  EXPECT_TRUE(checkJobMemory(job, memory(20'000'000'000)).ok());
}

TEST(JobMemory, CountsReplicas) {
  v1::TrainingJob job = makeJob("vgg19", 1);
  job.mutable_spec()->mutable_worker()->set_replicas(1);
  job.mutable_spec()->mutable_ps()->set_replicas(1);
  const auto told = [&] { return std::string(checkJobMemory(job, memory(1000)).message()); };
  EXPECT_THAT(told(), AllOf(HasSubstr("1 parameter servers 1.72 GB"),
                            HasSubstr("an only server's replicas 1.15 GB")));
  job.mutable_spec()->mutable_training()->set_chunk_replicas("Never");
  EXPECT_THAT(told(), AllOf(HasSubstr("1 parameter servers 1.15 GB"),
                            testing::Not(HasSubstr("an only server's"))));
}

TEST(JobMemory, RanksHoldTheOptimizersSlots) {
  v1::TrainingJob job = makeJob("vgg19", 1);
  v1::JobSpec& spec = *job.mutable_spec();
  spec.set_strategy("AllReduce");
  spec.clear_ps();
  spec.mutable_training()->mutable_optimizer()->set_name("Adam");
  EXPECT_THAT(std::string(checkJobMemory(job, memory(1000)).message()),
              AllOf(HasSubstr("a copy for a checkpoint 1.72 GB"),
                    HasSubstr("7 workers with weights 575 MB, gradients 575 MB, activations of 1 "
                              "samples "),
                    HasSubstr("slots of the optimizer 1.15 GB")));
}

TEST(JobMemory, OfAModelInAFileIsNotKnownHere) {
  EXPECT_TRUE(checkJobMemory(makeJob("torchscript", 32), memory(1)).ok());
}

}  // namespace
}  // namespace trainyard::cli
