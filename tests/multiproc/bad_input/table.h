// The table of wrong inputs: what is done, and what the programs must answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/core/status.h"

namespace trainyard {

// Where the answer stands.
enum class AnswerIn {
  kError,   // the only line of standard error, log lines of level I left out
  kResult,  // the last line of standard output; standard error is empty
  kSays,    // some line of standard output; standard error is empty
};

struct BadInputRow {
  std::string name;
  std::vector<std::string> preparation;  // shell commands, before
  std::string command;                   // one shell command
  int exit_code = 0;
  AnswerIn answer_in = AnswerIn::kError;
  std::string answer;       // RE2, the whole line
  int keeps = 150;          // step of the earlier checkpoint that must stay as it was; -1: none
  bool beside_job = false;  // while another job runs: its task port is $PORT, its directory $LIVE
  bool privileged = false;  // makes file systems of its own, or gives privileges up
};

// See table.txt for the form. INVALID_ARGUMENT names the line.
StatusOr<std::vector<BadInputRow>> parseBadInputTable(std::string_view text);

}  // namespace trainyard
