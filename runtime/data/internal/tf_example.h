// tf.Example: what a record of TensorFlow's says of one sample
// (tensorflow/core/example/example.proto and feature.proto). The little that it has is read here by
// hand, from protobuf's wire format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trainyard::runtime::internal {

// Has values of one kind.
struct TfFeature {
  enum class Kind { kNone, kBytes, kFloats, kInts };
  bool present = false;
  Kind kind = Kind::kNone;
  std::vector<std::string_view> bytes;
  std::vector<float> floats;
  std::vector<std::int64_t> ints;

  std::size_t size() const { return bytes.size() + floats.size() + ints.size(); }
  void clear();
};

class TfExample {
 public:
  // The features that are looked for; others are passed over. No name twice.
  explicit TfExample(std::span<const std::string> names);

  // False: `record` is no tf.Example, and features() are not to be read. Bytes of features lie in
  // `record`. As with protobuf the last of several features of one name counts.
  bool parse(std::string_view record);
  // By names; what an example does not have is not present.
  std::span<const TfFeature> features() const { return features_; }

 private:
  bool parseFeatures(std::string_view message);
  bool parseEntry(std::string_view message);

  std::unordered_map<std::string, std::size_t> number_of_;
  std::vector<TfFeature> features_;
};

}  // namespace trainyard::runtime::internal
