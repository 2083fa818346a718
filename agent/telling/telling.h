// What a program of the user's own says of itself: one JSON object a datagram.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/core/status.h"

namespace trainyard::agent {

// A level, not an event: one that is lost is made up for by the next.
struct Telling {
  std::optional<std::int64_t> step;       // newest complete one
  std::optional<std::int64_t> steps;      // how many there will be
  std::optional<std::uint64_t> examples;  // seen since the program began
  std::optional<double> loss;             // may be below zero, as log-likelihoods are
  std::optional<double> accuracy;
  std::optional<double> epoch;  // pass over the data
};

inline constexpr std::size_t kMaxTellingBytes = 4096;

// {"step": 7, "loss": 0.25, "examples": 448, ...}: any of the members; others, and members that are
// null, are passed over. INVALID_ARGUMENT says what is wrong: no JSON object, more than
// kMaxTellingBytes, a member that is no number, is not finite or is below zero, or a count that is
// no whole number below 2^53.
StatusOr<Telling> parseTelling(std::string_view datagram);

}  // namespace trainyard::agent
