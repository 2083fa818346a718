// Text of a given width on a terminal. Widths count code points: our own texts hold no wide or
// combining characters.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::cli {

int textWidth(std::string_view utf8);
// At most `width` columns; what is cut off shows as an ellipsis.
std::string fit(std::string_view utf8, int width);
std::string padRight(std::string_view utf8, int width);
std::string padLeft(std::string_view utf8, int width);

enum class Tone { kPlain, kBold, kDim, kGood, kWarn, kBad, kAccent };
// The text in ANSI colours, unchanged where `colour` is false.
std::string paint(std::string_view text, Tone tone, bool colour);

// A bar of `width` columns, `part` in [0, 1] of it full.
std::string progressBar(double part, int width, bool colour);

// "2,510", "38.4", "0.512": three figures that matter, thousands separated.
std::string formatRate(double value);
// Loss and accuracy: four decimals, more figures for small values.
std::string formatMeasure(double value);

}  // namespace trainyard::cli
