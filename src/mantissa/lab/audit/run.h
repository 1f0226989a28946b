// Runs a few steps of a training run under observation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <stop_token>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/lab/audit/audit.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::lab {

struct AuditOptions {
  std::int64_t steps = 20;  // from AuditSource::from on, to run.steps at most
  std::int64_t more = 0;    // at most so many steps in place of those that a loss scale skips,
  double more_seconds = std::numeric_limits<double>::infinity();  // none of them after so long
  std::int64_t observed = 20;                                     // at most so many of them, evenly spread
  std::int64_t applied = 0;  // if one of so many last steps is skipped, the audit ends there
  bool tries_cures = true;
  // That share the audit, if they are several; null: this process alone. All call audit_run() alike, and the
  // first one has the audit, and on_step.
  comm::Communicator* ranks = nullptr;
  // No cure is tried that would probably end later than this after the audit began, or, if the audit took
  // long, after the first trial began.
  double seconds = 100, trial_seconds = 50;
  std::string command = {}, run_command = {};                 // Audit::command, Audit::run_command
  std::function<std::string(const Cure&)> cure_command = {};  // Finding::command
};

/// The inputs with which an audit runs the steps, as often as it tries a cure.
struct AuditSource {
  const config::RunConfig& config;
  const weights::ModelSource& model;
  const train::Task& task;  // of which again() gives one for each repetition
  const runtime::Device& device;
  std::filesystem::path run = {};    // the directory of a run to replay; empty: a run from the beginning
  std::filesystem::path state = {};  // its state to continue from; empty: the beginning
  std::int64_t from = 1;             // the first step of the audit, after that of the state
};

/// Called after each step.
using OnAuditStep = std::function<void(const train::StepReport& step, std::int64_t steps)>;

/// Trains without writing anything, and returns what the steps showed, with findings and cures. The run that
/// is observed has the bits of a run that is not. A run that stops is the last step of its audit. Throws
/// ConfigError, FileError and ResourceError as a run does.
///
/// Each rank runs all steps and observes a part of them, and they try different cures at a time. The steps of
/// `rl` run on the first one alone: the program of a reward runs once.
Audit audit_run(const AuditSource& source, const AuditOptions& options, const OnAuditStep& on_step = {},
                const std::stop_token& stop = {});

}  // namespace mantissa::lab
