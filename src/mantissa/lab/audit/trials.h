// Repeats the steps of an audit under cures, each once, within a limit of time.
#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/lab/audit/run.h"

namespace mantissa::lab {

/// The findings of the steps of an audit under a cure.
struct Trial {
  std::vector<std::string> arguments;  // of the cure
  bool observed = false;               // every value was seen; otherwise only losses, weights and stops
  bool runs = false;  // the config takes the cure, no step stopped the run, and the last steps were applied
  std::vector<Finding> findings = {};
  std::size_t memory = 0;   // bytes, as predicted
  double step_seconds = 0;  // of a step, on average
};

struct CureTrials {
  std::int64_t steps = 20;  // of the audit
  std::int64_t more = 0;    // AuditOptions::more
  double seconds = 25;      // after which no trial begins; the first always does
};

class Trials {
 public:
  Trials(const Audit& audit, const AuditSource& source, const CureTrials& options,
         const std::stop_token& stop);

  /// Runs a cure unless it was run before. Returns its trial, which the next call may invalidate, or null if
  /// no time is left.
  const Trial* under(const Cure& cure, bool observed);
  /// The same with every format in f32, without rules.
  const Trial* in_f32();

  /// True if the audit took long, so that there is time for few trials. They observe their last step only.
  bool slow() const;
  /// Returns the number of cures that found no time.
  std::int64_t missed() const { return static_cast<std::int64_t>(missed_.size()); }
  /// Returns true if the finding and its kind are gone everywhere, and nothing worse has come.
  bool cures(const Trial& trial, const Finding& finding) const;

 private:
  const Trial* find(const std::vector<std::string>& arguments, bool observed) const;
  template <class Change>
  const Trial* run(const std::vector<std::string>& arguments, bool observed, const Change& change);

  const Audit& audit_;
  const AuditSource& source_;
  CureTrials options_;
  std::stop_token stop_;
  std::vector<Trial> trials_;
  std::vector<std::vector<std::string>> missed_;
  std::chrono::steady_clock::time_point begin_;
  double longest_ = 0;  // seconds of a trial
};

}  // namespace mantissa::lab
