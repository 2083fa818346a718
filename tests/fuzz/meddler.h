// Somebody between two who greet each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/choices.h"

namespace trainyard::fuzz {

// What becomes of a message, one byte in front of each.
enum Fate : std::uint8_t { kPassed, kChanged, kReplaced, kCutShort, kFates };

// As much of it as arrives, as it arrives.
inline std::string meddledWith(std::string message, Choices& choices) {
  switch (choices.byte() % kFates) {
    case kChanged: {
      const std::size_t at = choices.byte();
      if (!message.empty()) message[at % message.size()] ^= static_cast<char>(choices.byte());
      return message;
    }
    case kReplaced: {
      const std::string_view other = choices.take(message.size());
      return message.replace(0, other.size(), other);
    }
    case kCutShort:
      return message.substr(0, choices.byte());
    default:
      return message;
  }
}

}  // namespace trainyard::fuzz
