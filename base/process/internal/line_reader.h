// Hands over what a child writes into a pipe, line by line.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/process/pipe.h"

namespace trainyard::internal {

// Reads in a thread of its own until the pipe's other side is closed or finish() is called.
class LineReader {
 public:
  LineReader(UniqueFd source, WakeUp stop, std::function<void(std::string_view)> on_line);
  ~LineReader() { finish(); }

  // Hands over what is in the pipe now and ends the thread, even where somebody still holds the
  // other side open. Idempotent.
  void finish();

 private:
  void run();
  // Reads once; false when there is nothing (more) to read.
  bool readSome();
  void emit(std::string_view text);

  UniqueFd source_;
  WakeUp stop_;
  std::function<void(std::string_view)> on_line_;
  std::string partial_;
  std::thread thread_;
};

}  // namespace trainyard::internal
