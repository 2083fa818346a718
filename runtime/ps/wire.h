// What gradients and weights are between a worker and a server (training.wireType): 32-bit floats,
// or rounded to 16 bits as they leave and widened as they arrive. Servers send each other 32 bits.
// What passes through shared memory is 32 bits wide there and rounded all the same, as it is read,
// so that no bit depends on which way a chunk takes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/lanes/connection.h"
#include "runtime/ps/payload.h"
#include "runtime/tensor/element_type.h"

namespace trainyard::runtime::ps {

// A gradient of 16-bit floats, in memory that `owner` keeps; widened as it is read.
class NarrowPayload final : public GradientPayload {
 public:
  NarrowPayload(ElementType type, std::span<const std::byte> bytes,
                std::shared_ptr<const void> owner)
      : type_(type), bytes_(bytes), owner_(std::move(owner)) {}
  std::size_t sizeBytes() const override { return bytes_.size(); }
  std::size_t elementBytes() const override { return sizeOf(type_); }
  void copyTo(std::span<float> out, std::size_t at) const override;
  void addTo(std::span<float> acc, std::size_t at) const override;

 private:
  const std::byte* part(std::size_t at, std::size_t elements) const;

  const ElementType type_;
  const std::span<const std::byte> bytes_;
  const std::shared_ptr<const void> owner_;
};

// A gradient of 32-bit floats of which every number is read as what it would have become as
// `type`.
class RoundedPayload final : public GradientPayload {
 public:
  RoundedPayload(ElementType type, std::span<const std::byte> bytes,
                 std::shared_ptr<const void> owner)
      : type_(type), wide_(bytes, std::move(owner)) {}
  std::size_t sizeBytes() const override { return wide_.sizeBytes(); }
  void copyTo(std::span<float> out, std::size_t at) const override;
  void addTo(std::span<float> acc, std::size_t at) const override;

 private:
  const ElementType type_;
  const HeldPayload wide_;
};

// A gradient as it came in a body, or lies in shared memory.
std::unique_ptr<GradientPayload> receivedPayload(ElementType wire, std::span<const std::byte> bytes,
                                                 std::shared_ptr<const void> owner);
std::unique_ptr<GradientPayload> sharedPayload(ElementType wire, std::span<const std::byte> bytes,
                                               std::shared_ptr<const void> owner);

// The body that carries these arrays, one after the other: from where they lie, or rounded into
// memory of the pool.
std::vector<lanes::BodyPiece> wireBody(ElementType wire, const std::vector<PayloadPiece>& payload,
                                       BodyPool& pool);
std::size_t bytesOf(const std::vector<lanes::BodyPiece>& body);

// Bodies of weights for several workers, rounded once where they are the same. One thread.
class WeightsBodies {
 public:
  // `pool` must outlive it.
  WeightsBodies(ElementType wire, BodyPool& pool) : wire_(wire), pool_(pool) {}
  // Weights that are not written as long as others hold them (see Weights).
  std::vector<lanes::BodyPiece> of(const std::shared_ptr<const Weights>& weights);
  // Holds nothing any more: the newest weights may be written.
  void forget();

 private:
  const ElementType wire_;
  BodyPool& pool_;
  std::shared_ptr<const Weights> newest_;
  std::vector<lanes::BodyPiece> body_;  // of these
};

}  // namespace trainyard::runtime::ps
