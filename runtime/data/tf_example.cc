#include "runtime/data/internal/tf_example.h"

#include <bit>

namespace trainyard::runtime::internal {
namespace {

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Of a message's bytes, field by field. Everything returns false where they end too early, or say
// what no message says.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  bool atEnd() const { return rest_.empty(); }

  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return false;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool key(std::uint64_t& field, std::uint32_t& type) {
    std::uint64_t both = 0;
    if (!varint(both)) return false;
    field = both >> 3;
    type = static_cast<std::uint32_t>(both & 7);
    return field != 0;
  }

  bool bytes(std::string_view& value) {
    std::uint64_t size = 0;
    return varint(size) && take(size, value);
  }

  bool fixed32(std::uint32_t& value) {
    std::string_view four;
    if (!take(4, four)) return false;
    value = 0;
    for (std::size_t i = 0; i < 4; ++i)
      value |= std::uint32_t{static_cast<unsigned char>(four[i])} << (8 * i);
    return true;
  }

  // The value of a field that nobody knows. (Groups, which wire types 3 and 4 are, are long gone.)
  bool skip(std::uint32_t type) {
    std::uint64_t number = 0;
    std::string_view value;
    switch (type) {
      case kVarint:
        return varint(number);
      case kFixed64:
        return take(8, value);
      case kBytes:
        return bytes(value);
      case kFixed32:
        return take(4, value);
      default:
        return false;
    }
  }

 private:
  bool take(std::uint64_t size, std::string_view& value) {
    if (size > rest_.size()) return false;
    value = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
};

bool addFloat(WireReader& reader, std::vector<float>& floats) {
  std::uint32_t bits = 0;
  if (!reader.fixed32(bits)) return false;
  floats.push_back(std::bit_cast<float>(bits));
  return true;
}

bool addInt(WireReader& reader, std::vector<std::int64_t>& ints) {
  std::uint64_t bits = 0;
  if (!reader.varint(bits)) return false;
  ints.push_back(static_cast<std::int64_t>(bits));
  return true;
}

bool addBytes(WireReader& reader, std::vector<std::string_view>& all) {
  std::string_view bytes;
  if (!reader.bytes(bytes)) return false;
  all.push_back(bytes);
  return true;
}

// A list of numbers, one field each (wire type `single`) or many in one.
template <typename T>
bool addNumbers(WireReader& reader, std::uint32_t type, WireType single,
                bool (*add)(WireReader&, std::vector<T>&), std::vector<T>& values) {
  if (type == single) return add(reader, values);
  std::string_view packed;
  if (type != kBytes || !reader.bytes(packed)) return false;
  for (WireReader numbers(packed); !numbers.atEnd();)
    if (!add(numbers, values)) return false;
  return true;
}

// BytesList, FloatList, Int64List: repeated value = 1.
bool parseList(std::string_view message, TfFeature& feature) {
  std::uint64_t field = 0;
  std::uint32_t type = 0;
  for (WireReader reader(message); !reader.atEnd();) {
    if (!reader.key(field, type)) return false;
    bool good = false;
    if (field != 1) {
      good = reader.skip(type);
    } else if (feature.kind == TfFeature::Kind::kFloats) {
      good = addNumbers(reader, type, kFixed32, addFloat, feature.floats);
    } else if (feature.kind == TfFeature::Kind::kInts) {
      good = addNumbers(reader, type, kVarint, addInt, feature.ints);
    } else {
      good = type == kBytes && addBytes(reader, feature.bytes);
    }
    if (!good) return false;
  }
  return true;
}

TfFeature::Kind listKind(std::uint64_t field) {
  switch (field) {
    case 1:
      return TfFeature::Kind::kBytes;
    case 2:
      return TfFeature::Kind::kFloats;
    case 3:
      return TfFeature::Kind::kInts;
    default:
      return TfFeature::Kind::kNone;
  }
}

// Feature: one of BytesList bytes_list = 1, FloatList float_list = 2, Int64List int64_list = 3.
bool parseFeature(std::string_view message, TfFeature& feature) {
  std::uint64_t field = 0;
  std::uint32_t type = 0;
  std::string_view list;
  feature.clear();
  feature.present = true;
  for (WireReader reader(message); !reader.atEnd();) {
    if (!reader.key(field, type)) return false;
    const TfFeature::Kind kind = listKind(field);
    if (kind == TfFeature::Kind::kNone) {
      if (!reader.skip(type)) return false;
      continue;
    }
    if (type != kBytes || !reader.bytes(list)) return false;
    if (kind != feature.kind) feature.clear();
    feature.present = true;
    feature.kind = kind;
    if (!parseList(list, feature)) return false;
  }
  return true;
}

}  // namespace

void TfFeature::clear() {
  present = false;
  kind = Kind::kNone;
  bytes.clear();
  floats.clear();
  ints.clear();
}

TfExample::TfExample(std::span<const std::string> names) : features_(names.size()) {
  for (std::size_t i = 0; i < names.size(); ++i) number_of_.emplace(names[i], i);
}

// Example: Features features = 1.
bool TfExample::parse(std::string_view record) {
  for (TfFeature& feature : features_) feature.clear();
  std::uint64_t field = 0;
  std::uint32_t type = 0;
  std::string_view features;
  for (WireReader reader(record); !reader.atEnd();) {
    if (!reader.key(field, type)) return false;
    if (field != 1) {
      if (!reader.skip(type)) return false;
    } else if (type != kBytes || !reader.bytes(features) || !parseFeatures(features)) {
      return false;
    }
  }
  return true;
}

// Features: map<string, Feature> feature = 1.
bool TfExample::parseFeatures(std::string_view message) {
  std::uint64_t field = 0;
  std::uint32_t type = 0;
  std::string_view entry;
  for (WireReader reader(message); !reader.atEnd();) {
    if (!reader.key(field, type)) return false;
    if (field != 1) {
      if (!reader.skip(type)) return false;
    } else if (type != kBytes || !reader.bytes(entry) || !parseEntry(entry)) {
      return false;
    }
  }
  return true;
}

// A map's entry: key = 1, value = 2.
bool TfExample::parseEntry(std::string_view message) {
  std::uint64_t field = 0;
  std::uint32_t type = 0;
  std::string_view name;
  std::string_view value;
  for (WireReader reader(message); !reader.atEnd();) {
    if (!reader.key(field, type)) return false;
    const bool known = field == 1 || field == 2;
    if (!known) {
      if (!reader.skip(type)) return false;
    } else if (type != kBytes || !reader.bytes(field == 1 ? name : value)) {
      return false;
    }
  }
  const auto found = number_of_.find(std::string(name));
  return found == number_of_.end() || parseFeature(value, features_[found->second]);
}

}  // namespace trainyard::runtime::internal
