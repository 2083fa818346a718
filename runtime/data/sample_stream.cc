#include "runtime/data/sample_stream.h"

#include <algorithm>
#include <numeric>

#include "base/core/check.h"
#include "base/core/rng.h"

namespace trainyard::runtime {
namespace {

constexpr std::uint64_t kRounds = 64;  // of swap-or-not

// Uniform in [0, bound) by one multiplication; a division only in the rare case that it may be
// biased.
std::uint32_t below(Rng& rng, std::uint32_t bound) {
  std::uint64_t product = (rng.next() >> 32) * bound;
  if (static_cast<std::uint32_t>(product) < bound) {
    const std::uint32_t threshold = -bound % bound;  // 2^32 mod bound
    while (static_cast<std::uint32_t>(product) < threshold) product = (rng.next() >> 32) * bound;
  }
  return static_cast<std::uint32_t>(product >> 32);
}

// The numbers below `size`, in an order that is `key`'s.
void shuffle(std::uint64_t key, std::int64_t size, std::vector<std::uint32_t>& order) {
  order.resize(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0u);
  Rng rng(key);
  for (auto i = static_cast<std::uint32_t>(size - 1); i > 0; --i) {
    std::swap(order[i], order[below(rng, i + 1)]);
  }
}

// Uniform in [0, bound) but for a bias below bound / 2^64.
std::int64_t drawn(std::uint64_t bits, std::int64_t bound) {
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(bound));
}

// Where swap-or-not puts number `i` of `size`. Each round pairs every number with its reflection,
// and a bit of the pair says whether they change places.
std::int64_t permuted(std::uint64_t key, std::int64_t size, std::int64_t i) {
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t bits = mixKey(key, round);
    std::int64_t partner = drawn(bits, size) - i;
    if (partner < 0) partner += size;
    const auto pair = static_cast<std::uint64_t>(std::max(i, partner));
    if ((mixKey(bits, pair) & 1) != 0) i = partner;
  }
  return i;
}

}  // namespace

SampleStream::SampleStream(std::uint64_t seed, std::int64_t samples, SampleOrder order)
    : seed_(seed), samples_(samples), order_(order) {
  TY_CHECK(samples >= 1 && samples <= order.maxSamples(), "openData refuses other sizes");
  TY_CHECK(order.kind != SampleOrder::Kind::kBlocks ||
               (order.block_samples >= 1 && order.block_samples <= kMaxBlockSamples),
           "openData refuses other blocks");
}

const std::vector<std::uint32_t>& SampleStream::passOrder(std::int64_t pass) {
  Permutation& kept = passes_[pass % 2];
  if (kept.pass != pass) {
    shuffle(mixKey(mixKey(seed_, "sample stream"), static_cast<std::uint64_t>(pass)), samples_,
            kept.order);
    kept.pass = pass;
  }
  return kept.order;
}

const std::vector<std::uint32_t>& SampleStream::blockOrder(std::int64_t pass, std::int64_t block,
                                                           std::int64_t size) {
  if (block_.pass != pass || block_.block != block) {
    const std::uint64_t key = mixKey(mixKey(seed_, "block"), static_cast<std::uint64_t>(pass));
    shuffle(mixKey(key, static_cast<std::uint64_t>(block)), size, block_.order);
    block_.pass = pass;
    block_.block = block;
  }
  return block_.order;
}

SampleStream::Run SampleStream::blockAt(std::int64_t pass, std::int64_t offset) {
  const std::int64_t size = order_.block_samples;
  const std::int64_t whole = samples_ / size;  // blocks
  const std::int64_t rest = samples_ % size;   // samples of the shorter one, if there is one
  const std::uint64_t key =
      mixKey(mixKey(seed_, "order of blocks"), static_cast<std::uint64_t>(pass));
  const std::int64_t before_rest = drawn(mixKey(key, "shorter block"), whole + 1) * size;
  if (offset >= before_rest && offset < before_rest + rest) {
    return {whole * size, offset - before_rest, rest, &blockOrder(pass, whole, rest)};
  }
  if (offset >= before_rest) offset -= rest;
  const std::int64_t block = permuted(key, whole, offset / size);
  return {block * size, offset % size, size, &blockOrder(pass, block, size)};
}

SampleStream::Run SampleStream::runAt(std::int64_t position) {
  const std::int64_t pass = position / samples_;
  const std::int64_t offset = position % samples_;
  switch (order_.kind) {
    case SampleOrder::Kind::kShuffled:
      return {0, offset, samples_, &passOrder(pass)};
    case SampleOrder::Kind::kBlocks:
      return blockAt(pass, offset);
    case SampleOrder::Kind::kSequential:
      break;
  }
  return {0, offset, samples_, nullptr};
}

void SampleStream::lookUp(std::int64_t first, std::span<std::int64_t> out) {
  TY_CHECK(first >= 0, "positions count from 0");
  for (std::size_t done = 0; done < out.size();) {
    const Run run = runAt(first + static_cast<std::int64_t>(done));
    const std::size_t count =
        std::min(out.size() - done, static_cast<std::size_t>(run.size - run.offset));
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t at = run.offset + static_cast<std::int64_t>(i);
      out[done + i] = run.first_sample + (run.order == nullptr ? at : (*run.order)[at]);
    }
    done += count;
  }
}

std::pair<std::int64_t, std::int64_t> evaluationSlice(std::int64_t n, int ranks, int rank) {
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

}  // namespace trainyard::runtime
