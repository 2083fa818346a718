// The answer to wrong flags, the same in all our programs: one line that names the command, what is
// wrong, and where help is.
#pragma once

#include <iosfwd>
#include <string>

#include "CLI/CLI.hpp"

namespace trainyard {

// Writes what `error`, thrown by app.parse(), asks for: help to `out` (kExitOk), anything else as
// one line to `err` (kExitUsage). Returns the exit code.
int answerParseError(const CLI::App& app, const CLI::ParseError& error, std::ostream& out,
                     std::ostream& err);

// For a flag whose value must be a whole number of that range, both ends included.
CLI::Validator wholeNumber(long low, long high);

// For a flag whose value is an assignment to something that has a name; `form` says so to users:
// "PATH=VALUE".
CLI::Validator assignment(const std::string& form);

}  // namespace trainyard
