// Audits: a few steps under observation, and what the precision did in them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/app/api/config.h"
#include "mantissa/app/api/data.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/precision.h"
#include "mantissa/app/api/ranks.h"

namespace mantissa::api {

struct AuditOptions {
  std::int64_t steps = 20;                // from the beginning; at most run.steps
  std::vector<std::string> changes = {};  // key=value, of the config of a run or a model
  bool try_cures = true;                  // replay the steps with each cure
  // For the report: the command that made it, and that of the run with a cure.
  std::string command = {};
  std::function<std::string(const Cure& cure)> cure_command = {};
  Hardware hardware;
  Data data;                    // from memory, in place of the config's source
  bool allow_programs = false;  // of audit_replay(): Config::allow_programs()
  Ranks ranks;  // that share the audit: each calls it alike, and the first one has the report and events
};

struct AuditReport {
  std::string text;                        // the verdict and the findings, for people
  std::string json;                        // audit.json (docs/cli/audit.md)
  std::string html;                        // report.html: one page without references to other files
  std::vector<std::string> notes;          // how the steps were chosen
  std::vector<std::string> warnings = {};  // of rules that match nothing, or change nothing
  std::int64_t findings = 0;
  std::int64_t steps = 0;  // that ran
  bool interrupted = false;
};

/// The text of an audit of a model.
struct AuditText {
  std::vector<std::string> files;  // none: puzzles if the ids are bytes, else random ids
  std::string format = "auto";
  std::int64_t sequence_length = 128;
};

/// Called after each step with its loss.
using OnAuditStep = std::function<void(std::int64_t step, std::int64_t steps, double loss)>;

/// Trains `options.steps` steps of a run without writing anything, observes every value of the plan, and
/// returns what it saw. The steps have the bits of a run that is not observed. Throws ConfigError, FileError
/// and ResourceError as train() does. A run that stops is a finding.
AuditReport audit(const Config& config, const AuditOptions& options = {}, const OnAuditStep& on_step = {},
                  std::stop_token stop = {});
/// Replays steps of a run from a saved state, with the bits that they had, under observation: from step
/// `from`, or, with 0, from the newest state that is followed by a step. `precision` replaces the run's
/// policy if it has one. Throws FileError if the directory has no config.toml, or no state before `from`.
AuditReport audit_replay(const std::filesystem::path& run, std::int64_t from, const Precision& precision,
                         const AuditOptions& options, const OnAuditStep& on_step = {},
                         std::stop_token stop = {});
/// Trains a model for a few steps of four sequences at a low learning rate (1e-5), under `precision` or, if
/// that names no policy, 16-mixed. A DeepSpeed file's other settings are used, except those of the batch.
AuditReport audit_model(const std::filesystem::path& model, const AuditText& text, const Precision& precision,
                        const AuditOptions& options, const OnAuditStep& on_step = {},
                        std::stop_token stop = {});

}  // namespace mantissa::api
