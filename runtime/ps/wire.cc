#include "runtime/ps/wire.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/core/check.h"
#include "runtime/tensor/kernels.h"
#include "runtime/tensor/reduce.h"

namespace trainyard::runtime::ps {
namespace {

std::int64_t count(std::size_t elements) {
  return static_cast<std::int64_t>(elements);
}

}  // namespace

const std::byte* NarrowPayload::part(std::size_t at, std::size_t elements) const {
  TY_CHECK((at + elements) * sizeOf(type_) <= bytes_.size(), "the caller has compared the sizes");
  return bytes_.data() + at * sizeOf(type_);
}

void NarrowPayload::copyTo(std::span<float> out, std::size_t at) const {
  widenFloats(type_, std::as_writable_bytes(out).data(), part(at, out.size()), count(out.size()));
}

void NarrowPayload::addTo(std::span<float> acc, std::size_t at) const {
  addWidened(type_, acc.data(), part(at, acc.size()), count(acc.size()));
}

void RoundedPayload::copyTo(std::span<float> out, std::size_t at) const {
  wide_.copyTo(out, at);
  roundFloats(type_, out);
}

void RoundedPayload::addTo(std::span<float> acc, std::size_t at) const {
  // A block stays in the first-level cache.
  constexpr std::size_t kBlock = 2048;
  std::array<float, kBlock> block;
  for (std::size_t begin = 0; begin < acc.size(); begin += kBlock) {
    const std::span<float> rounded = std::span(block).first(std::min(kBlock, acc.size() - begin));
    copyTo(rounded, at + begin);
    addFloats(acc.data() + begin, std::as_bytes(rounded).data(), count(rounded.size()));
  }
}

std::unique_ptr<GradientPayload> receivedPayload(ElementType wire, std::span<const std::byte> bytes,
                                                 std::shared_ptr<const void> owner) {
  if (wire == ElementType::kFloat32) return std::make_unique<HeldPayload>(bytes, std::move(owner));
  return std::make_unique<NarrowPayload>(wire, bytes, std::move(owner));
}

std::unique_ptr<GradientPayload> sharedPayload(ElementType wire, std::span<const std::byte> bytes,
                                               std::shared_ptr<const void> owner) {
  if (wire == ElementType::kFloat32) return std::make_unique<HeldPayload>(bytes, std::move(owner));
  return std::make_unique<RoundedPayload>(wire, bytes, std::move(owner));
}

std::vector<lanes::BodyPiece> wireBody(ElementType wire, const std::vector<PayloadPiece>& payload,
                                       BodyPool& pool) {
  std::vector<lanes::BodyPiece> body;
  if (wire == ElementType::kFloat32) {
    for (const PayloadPiece& piece : payload)
      body.push_back({std::as_bytes(piece.values), piece.owner});
    return body;
  }
  std::size_t bytes = 0;
  for (const PayloadPiece& piece : payload) bytes += piece.values.size() * sizeOf(wire);
  if (bytes == 0) return body;
  std::shared_ptr<std::byte[]> narrow = pool.take(bytes);
  std::byte* to = narrow.get();
  for (const PayloadPiece& piece : payload) {
    narrowFloats(wire, to, std::as_bytes(piece.values).data(), count(piece.values.size()));
    to += piece.values.size() * sizeOf(wire);
  }
  const std::span<const std::byte> whole(narrow.get(), bytes);
  body.push_back({whole, std::move(narrow)});
  return body;
}

std::size_t bytesOf(const std::vector<lanes::BodyPiece>& body) {
  std::size_t bytes = 0;
  for (const lanes::BodyPiece& piece : body) bytes += piece.bytes.size();
  return bytes;
}

std::vector<lanes::BodyPiece> WeightsBodies::of(const std::shared_ptr<const Weights>& weights) {
  if (weights != newest_) {
    body_ = wireBody(wire_, {{*weights, weights}}, pool_);
    newest_ = weights;
  }
  return body_;
}

void WeightsBodies::forget() {
  newest_ = nullptr;
  body_.clear();
}

}  // namespace trainyard::runtime::ps
