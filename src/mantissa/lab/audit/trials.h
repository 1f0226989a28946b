// Repeats the steps of an audit under cures, each once, within a limit of time. Ranks run several at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/lab/audit/run.h"

namespace mantissa::lab {

/// The findings of the steps of an audit under a cure.
struct Trial {
  std::vector<std::string> arguments;  // of the cure
  bool observed = false;               // every value was seen; otherwise only losses, weights and stops
  bool runs = false;  // the config takes the cure, no step stopped the run, and the last steps were applied
  bool out_of_time = false;            // it ended at AuditOptions::more_seconds, and tells nothing
  std::vector<Finding> findings = {};  // their kind, rule and severity
  std::size_t memory = 0;              // of the run without this process, as predicted, in bytes
  double step_seconds = 0;             // of a step, on average
  double seconds = 0;                  // of the trial
};

/// What a rank runs.
struct TrialJob {
  std::vector<std::string> arguments;  // of the cure, or "f32": every format in f32, without rules
  bool observed = false;
  std::int64_t steps = 0, more = 0;  // CureTrials
  std::int64_t seen = 0;             // AuditOptions::observed
  double more_seconds = 0;           // AuditOptions::more_seconds
};

struct CureTrials {
  std::int64_t steps = 20;  // of the audit
  std::int64_t more = 0;    // AuditOptions::more
  double seconds = 25;      // after which no trial begins; the first always does
};

class Trials {
 public:
  Trials(const Audit& audit, const AuditSource& source, const CureTrials& options,
         const std::stop_token& stop, comm::Communicator* ranks);

  /// Runs the first cure unless it was run before, and at the same time the next ones on other ranks. Returns
  /// the trial of the first, which the next call may invalidate, or null if no time is left.
  const Trial* under(std::span<const Cure> cures, bool observed);
  /// The same with every format in f32, without rules.
  const Trial* in_f32();

  /// True if the audit took long, so that there is time for few trials. They observe their last step only.
  bool slow() const;
  /// Returns true if a stop of any rank ended them.
  bool stopped() const { return stopped_; }
  /// Returns the number of cures that found no time.
  std::int64_t missed() const { return static_cast<std::int64_t>(missed_.size()); }
  /// Returns true if the finding and its kind are gone everywhere, and nothing worse has come.
  bool cures(const Trial& trial, const Finding& finding) const;
  /// Returns the memory of the run of a trial in the process of the audit, as predicted, in bytes.
  std::size_t memory_of(const Trial& trial) const { return trial.memory + audit_.process; }

 private:
  using Arguments = std::vector<std::string>;
  const Trial* find(const Arguments& arguments, bool observed) const;
  const Trial* run(const std::vector<Arguments>& wanted, bool observed);

  const Audit& audit_;
  const AuditSource& source_;
  CureTrials options_;
  std::stop_token stop_;
  comm::Communicator* ranks_;
  std::vector<Trial> trials_;
  std::vector<Arguments> missed_;
  std::chrono::steady_clock::time_point begin_;
  double longest_ = 0;  // seconds of a trial
  bool stopped_ = false;
};

/// Runs the trials that the first rank asks for, until it ends them.
void follow_trials(comm::Communicator& ranks, const AuditSource& source, const std::stop_token& stop);
/// Ends the trials of the other ranks.
void end_trials(comm::Communicator& ranks);

}  // namespace mantissa::lab
