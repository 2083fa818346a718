// The live table of `trainyard run` on a terminal.
#pragma once

#include <string>
#include <vector>

#include "cli/live/snapshot.h"

namespace trainyard::cli {

struct TableStyle {
  int columns = 80;  // no line is wider
  int rows = 0;      // nor are there more of them; 0: any number
  bool colour = false;
};

// A head line, a progress bar, one line per task, and what there is to say below. Pure.
std::vector<std::string> renderTable(const RunSnapshot& run, const TableStyle& style);

// Draws frames over each other at the bottom of a terminal. Pure: it returns what to write.
class Screen {
 public:
  // Replaces the frame that was drawn last.
  std::string draw(const std::vector<std::string>& lines);
  // Puts `line` above the frame, where it stays; the frame is drawn again by the next draw().
  std::string print(const std::string& line);

 private:
  std::string clear();
  std::size_t height_ = 0;  // lines of the frame now on the screen
};

}  // namespace trainyard::cli
