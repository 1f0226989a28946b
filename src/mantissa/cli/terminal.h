// What a person sees: a table of steps, one live line, messages.
#pragma once

#include <string>

#include "mantissa/api/mantissa.h"

namespace mantissa::cli {

/// Prints the steps of a run: a line now and then, and on a terminal one live line in between.
class StepTable {
 public:
  explicit StepTable(bool quiet);
  void show(const api::Step& step);
  /// A line of its own among the steps.
  void say(const std::string& line);
  /// Ends the live line.
  void finish();

 private:
  void header(bool scaled);
  bool quiet_;
  bool live_;  // standard output is a terminal
  bool begun_ = false;
  bool line_open_ = false;
};

}  // namespace mantissa::cli
