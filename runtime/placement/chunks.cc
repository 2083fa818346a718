#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/core/units.h"
#include "runtime/placement/internal/cut.h"

namespace trainyard::runtime::internal {
namespace {

constexpr std::int64_t kSmallest = 64 * kKiB;
// Of a step's first chunk all workers' must have come in before anything goes back, and while the
// last goes back nothing comes in: with seven workers at 1 Gbit/s, chunks of 4 MiB made a step of
// VGG19 4 % longer, and one of a model of 80 MB and two workers 7 %.
constexpr std::int64_t kLargest = 1 * kMiB;
constexpr std::int64_t kChunkAlignment = 16;  // elements: 64 bytes

// Sorts, and joins runs that touch.
void normalise(Chunk& chunk) {
  std::sort(chunk.segments.begin(), chunk.segments.end(), [](const Segment& a, const Segment& b) {
    return std::pair(a.variable, a.begin) < std::pair(b.variable, b.begin);
  });
  std::vector<Segment> joined;
  for (const Segment& segment : chunk.segments) {
    if (!joined.empty() && joined.back().variable == segment.variable &&
        joined.back().end == segment.begin) {
      joined.back().end = segment.end;
    } else {
      joined.push_back(segment);
    }
  }
  chunk.segments = std::move(joined);
}

struct ChunkSizes {
  std::int64_t target = 0;
  std::int64_t largest = 0;
};

// Chunks of a few servers that would be larger than six of the smallest are half as large, but not
// below: with 50 MB and four servers behind links of 250 Mbit/s steps were 3 to 4 % shorter for
// it, and between processes of one machine, where a chunk costs time of its own, none longer. With
// 13 MB and two servers halves of 203 to 256 KiB made steps 5 to 12 % longer there.
//
// More than a few servers have small chunks, three of each within what a worker has under way to
// all, as long as that makes none below the smallest. With 50 MB and eight servers behind links of
// 250 Mbit/s chunks of 400 KB made a step 25 to 69 % longer than computing and exchange take, of
// 64 to 128 KiB 4 to 9 % (docs/experiments.md, "What its carrier hid").
ChunkSizes sizesFor(std::int64_t bytes, std::int64_t servers) {
  if (servers <= kFewServers) {
    const std::int64_t least = std::clamp(bytes / (16 * servers), kSmallest, 6 * kSmallest);
    return {std::clamp(bytes / (32 * servers), least, kLargest), kLargest};
  }
  const std::int64_t most = std::clamp(kUnderWayToMany / (3 * servers), kSmallest, 2 * kSmallest);
  const std::int64_t target = std::clamp(bytes / (64 * servers), kSmallest, most);
  return {target, 2 * target};
}

// Makes the chunks of one ps out of its parts, given one after the other.
class Packer {
 public:
  Packer(int ps, ChunkSizes sizes, std::vector<Chunk>& out)
      : ps_(ps), sizes_(sizes), small_(std::max(sizes.target / 2, kSmallest)), out_(out) {
    pack_.ps = ps;
  }

  void add(std::int64_t bytes, const std::vector<Segment>& segments) {
    const bool large = bytes >= small_;
    const std::int64_t packed = pack_.elements * 4;
    if (packed >= kSmallest && (large || packed + bytes > sizes_.target)) flush();
    if (large) {
      cut(bytes, segments);
    } else {
      pack_.segments.insert(pack_.segments.end(), segments.begin(), segments.end());
      pack_.elements += bytes / 4;
    }
  }

  void flush() {
    if (pack_.elements == 0) return;
    emit(std::move(pack_));
    pack_ = {};
    pack_.ps = ps_;
  }

 private:
  // Equal pieces; each but the first begins at a multiple of 16 elements, in the variable where the
  // part is one run of it.
  void cut(std::int64_t bytes, const std::vector<Segment>& segments) {
    const std::int64_t elements = bytes / 4;
    // Alignment may lengthen a piece by less than 64 bytes.
    const std::int64_t most = sizes_.largest - kChunkAlignment * 4;
    const std::int64_t pieces = std::max(bytes / sizes_.target, (bytes + most - 1) / most);
    const std::int64_t skew = segments.size() == 1 ? segments[0].begin % kChunkAlignment : 0;
    auto segment = segments.begin();
    std::int64_t used = 0;  // of *segment
    std::int64_t begin = 0;
    for (std::int64_t k = 1; k <= pieces; ++k) {
      std::int64_t end = elements;
      if (k < pieces)
        end = (elements / pieces * k + skew) / kChunkAlignment * kChunkAlignment - skew;
      Chunk chunk;
      chunk.ps = ps_;
      chunk.elements = end - begin;
      while (begin < end) {
        const std::int64_t from = segment->begin + used;
        const std::int64_t take = std::min(end - begin, segment->end - from);
        chunk.segments.push_back({segment->variable, from, from + take});
        begin += take;
        used += take;
        if (from + take == segment->end) {
          ++segment;
          used = 0;
        }
      }
      emit(std::move(chunk));
    }
  }

  void emit(Chunk chunk) {
    normalise(chunk);
    out_.push_back(std::move(chunk));
  }

  const int ps_;
  const ChunkSizes sizes_;
  const std::int64_t small_;  // parts below share chunks
  std::vector<Chunk>& out_;
  Chunk pack_;
};

// See Chunk: by the first variable, descending; then in turns over the ps.
void orderByReadiness(std::vector<Chunk>& chunks) {
  std::map<std::pair<int, int>, int> turns;  // (ps, first variable) -> chunks so far
  struct Key {
    int first_variable;
    int turn;
    int ps;
    std::size_t at;
  };
  std::vector<Key> keys;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const int first = chunks[i].segments.front().variable;
    keys.push_back({first, turns[{chunks[i].ps, first}]++, chunks[i].ps, i});
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return std::tuple(-a.first_variable, a.turn, a.ps) <
           std::tuple(-b.first_variable, b.turn, b.ps);
  });
  std::vector<Chunk> ordered;
  for (const Key& key : keys) {
    ordered.push_back(std::move(chunks[key.at]));
    ordered.back().id = static_cast<std::uint32_t>(ordered.size() - 1);
  }
  chunks = std::move(ordered);
}

}  // namespace

std::vector<Chunk> makeChunks(const Placement& placement, int max_ps) {
  std::int64_t bytes = 0;
  std::vector<std::vector<Part>> parts_of(placement.num_ps);
  for (const Part& part : placement.parts) {
    if (!placement.variables[part.variable].trainable) continue;
    bytes += part.bytes;
    parts_of[part.ps].push_back(part);
  }
  const ChunkSizes sizes = sizesFor(bytes, max_ps);
  std::vector<Chunk> chunks;
  for (int ps = 0; ps < placement.num_ps; ++ps) {
    std::stable_sort(parts_of[ps].begin(), parts_of[ps].end(), [](const Part& a, const Part& b) {
      return std::pair(-a.variable, a.begin) < std::pair(-b.variable, b.begin);
    });
    Packer packer(ps, sizes, chunks);
    for (const Part& part : parts_of[ps]) packer.add(part.bytes, placement.segmentsOf(part));
    packer.flush();
  }
  orderByReadiness(chunks);
  return chunks;
}

}  // namespace trainyard::runtime::internal
