// Terminal output of a run: a table of steps, one live line, messages.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "mantissa/app/api/mantissa.h"
#include "mantissa/app/cli/step_columns.h"

namespace mantissa::cli {

/// Prints the steps of a run: a table line now and then and, on a terminal, one live line in between.
/// Otherwise there is a line at least every `longest`, even within a long step, and with 0 one for each step.
class StepTable {
 public:
  explicit StepTable(bool quiet, std::chrono::milliseconds longest = std::chrono::seconds(30));
  ~StepTable();
  StepTable(const StepTable&) = delete;
  StepTable& operator=(const StepTable&) = delete;

  void show(const api::Step& step);
  /// Prints a separate line, or several, among the steps.
  void say(const std::string& line);
  /// Ends the live line. Throws ResourceError if a write to standard output failed. Until then, a failed
  /// write only ends the output.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  // The caller of these functions holds mutex_.
  void header(const api::Step& step);
  void write(const std::string& text);
  void print(const std::string& line);
  void end_live_line();
  bool is_overdue() const { return Clock::now() - last_line_ >= longest_; }
  /// Prints the elapsed time after `longest_` without a line.
  void beat(const std::stop_token& over);

  bool quiet_;
  bool live_;  // standard output is a terminal
  std::chrono::milliseconds longest_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::optional<StepColumns> columns_;  // from the first step on
  bool line_open_ = false;
  int lost_ = 0;            // errno of a failed write, after which nothing is written
  std::int64_t step_ = 0;   // the last step shown
  std::int64_t steps_ = 0;  // of the run; 0: unknown yet
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_line_ = start_;
  std::jthread heart_;  // runs if standard output is not a terminal
};

}  // namespace mantissa::cli
