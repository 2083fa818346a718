// Names and shapes of the built-in models' variables, in the order TensorFlow creates them. No
// torch: `plan` and the parameter servers need nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/core/status.h"
#include "runtime/catalog/variable.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::runtime {

inline constexpr std::string_view kGlobalStep = "global_step";

// The counter of steps, which every job has: int32, a scalar, not trained.
Variable globalStep();

// The model is a program's of the user's own, which declares its variables when it runs.
inline bool isProgram(const v1::ModelSpec& model) {
  return model.name() == "program";
}

// A sample is rows of embedding tables and numbers, not a picture.
inline bool isTabular(const v1::ModelSpec& model) {
  return model.name() == "wide_and_deep" || model.name() == "dlrm";
}

// The variables of `model` for inputs of `input_shape` [height, width, channels] and `classes`
// classes. global_step (int32, scalar, not trainable) stands first, as in the programs whose
// placement we reproduce. Weights are named <layer>_wei, biases <layer>_bia.
//
// mnist_cnn: conv1, conv2 (5x5), fc1, fc2. Padding and both 2x2 pools are SAME: a pool halves
// height and width rounding up. Weights truncated normal 0.1, biases 0.1.
//
// mlp: hidden1 ... hiddenN, output; N may be 0. Weights truncated normal 1 / sqrt(inputs), biases 0
// (TensorFlow's examples/tutorials/mnist/mnist.py).
//
// vgg19: conv1_1 ... conv5_4 (3x3), fc6, fc7, fc8, the fc layers dense (Simonyan, Zisserman: "Very
// Deep Convolutional Networks", configuration E). Five pools halve rounding down. Weights truncated
// normal sqrt(2 / inputs), biases 0.
//
// wide_and_deep: hidden1 ... hiddenN, N >= 1, of all that is deep, a sample's combined rows of
// tables whose dim is above 1 and its numbers; output [width of hiddenN, 1] and bias; numbers_wei
// [numbers] of the wide half where there are numbers (Cheng and others: "Wide & Deep Learning for
// Recommender Systems", 2016). The wide half's rows are those of tables with dim 1. Input [1,
// numbers, deep inputs], 2 classes. Weights as mlp's; numbers_wei zeros.
//
// dlrm: bottom1 ... bottomN of the numbers, N >= 1, the last as wide as a row of the tables;
// hidden1 ... hiddenM, M >= 1, of the bottom's output and the dot products of each two of it and
// the features' rows; output [width of hiddenM, 1] and bias (Naumov and others: "Deep Learning
// Recommendation Model for Personalization and Recommendation Systems", 2019). Input [features,
// numbers, dim of a row], 2 classes. Weights truncated normal sqrt(2 / (inputs + outputs)), biases
// sqrt(1 / outputs), the deviations of the authors' code.
//
// INVALID_ARGUMENT names the field: unknown model, shape that does not fit, a variable of more than
// 2^36 elements.
StatusOr<std::vector<Variable>> catalogVariables(const v1::ModelSpec& model,
                                                 const std::array<int, 3>& input_shape,
                                                 int classes);

// The input shape and classes that a job implies without opening its data: synthetic data's own,
// else the model's usual ones (mnist_cnn and mlp 28x28x1 and 10, vgg19 224x224x3 and 1000). What
// tables and columns make, and 2 classes: of wide_and_deep [1, columns of kind Number, sum over
// tables of dim above 1 of dim x features + columns of kind Number], of dlrm [features of all
// tables, columns of kind Number, dim of the first table, 0 without tables].
struct InputShape {
  std::array<int, 3> shape;
  int classes;
};
InputShape impliedInput(const v1::Training& training);

// Fills elements [begin, begin + out.size()) of the flattened variable with its initial values: a
// function of (seed, variable name, element) alone, so that any shard computes its own part. A
// truncated normal value lies within two standard deviations, as TensorFlow's does. Precondition:
// float32, 0 <= begin, begin + out.size() <= elements().
void initialise(const Variable& variable, std::uint64_t seed, std::int64_t begin,
                std::span<float> out);

}  // namespace trainyard::runtime
