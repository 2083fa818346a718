// Carries out one row of the table in a folder of its own.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/multiproc/bad_input/table.h"

namespace trainyard {

struct RowAnswer {
  int code = -1;    // -1: ended by a signal, or not at all
  std::string end;  // the same in words
  std::string out, err;
};

class RowRunner {
 public:
  // `model` holds what every row starts from, `work` is where rows get their copies of it.
  RowRunner(std::filesystem::path model, std::filesystem::path work)
      : model_(std::move(model)), work_(std::move(work)) {}

  // What the row's commands find in their environment beside that of this process.
  void setVariable(const std::string& name, const std::string& value) { variables_[name] = value; }
  // Digests of the model's run by step; taken once, before any row.
  void setDigest(int step, const std::string& digest) { digests_[step] = digest; }

  // What is not as written down, one line each; nothing when all is.
  std::vector<std::string> perform(const BadInputRow& row, RowAnswer* answer);

 private:
  RowAnswer shell(const std::filesystem::path& folder, const std::string& script) const;
  void checkAnswer(const BadInputRow& row, const RowAnswer& answer,
                   std::vector<std::string>* wrong) const;
  void checkDigest(const BadInputRow& row, const std::filesystem::path& folder,
                   std::vector<std::string>* wrong) const;

  const std::filesystem::path model_, work_;
  std::map<std::string, std::string> variables_;
  std::map<int, std::string> digests_;
  int performed_ = 0;
};

// Processes that work in `folder` or have it among their arguments.
std::vector<pid_t> processesIn(const std::filesystem::path& folder);

// The lines of a program's standard error that are more than news.
std::vector<std::string> errorLines(const std::string& err);

}  // namespace trainyard
