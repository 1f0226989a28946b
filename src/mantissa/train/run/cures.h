// The cures of a stopped run, tried by replay before they are printed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/train/steps/task.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

/// What a replay needs to repeat the failed step.
struct Replay {
  const config::RunConfig& config;
  const weights::ModelSource& source;
  const train::Task& task;
  const runtime::Device& device;
  std::filesystem::path state;  // a state directory; empty: the start of the run
  std::int64_t stopped = 1;     // the step that failed
  bool validates = false;       // the validation after the last step failed
  std::size_t used_bytes = 0;   // by the stopped run, whose memory is still allocated
};

/// Returns `config` with the arguments of a cure: --set, --rule and --precision. Throws ConfigError if they
/// do not fit the config.
config::RunConfig with_cure(const config::RunConfig& config, const Cure& cure,
                            std::vector<std::string> overrides = {});

/// The cures of a stopped run after their trial.
struct Tried {
  std::vector<Cure> cures = {};   // those that worked, then those that were not tried
  std::vector<Cure> failed = {};  // to tell, not to offer
};

/// Continues from the state with the arguments of each cure, or starts over with them, and marks the cures
/// under which three steps from the failed one on are applied, or as many as the patience if that is more. A
/// dynamic loss scale may skip a few steps first. A rule is joined by the rules that cure the next stops, up
/// to three, and then applied to the whole model. If nothing works, 32-true is tried. Cures that hide the
/// problem, which their stated effect tells, are passed on as they are. So are all cures, as not tried, if a
/// replay would need more memory than the machine has, if the task cannot be repeated, if a replay from the
/// beginning would be long, or when `stop` requests an end.
Tried tried(const std::vector<Cure>& cures, const Replay& replay, const std::stop_token& stop);

/// Returns the arguments of cures that failed, separated by commas.
std::string failed_text(const std::vector<Cure>& failed);

}  // namespace mantissa::run
