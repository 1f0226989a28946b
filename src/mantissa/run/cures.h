// The cures of a stopped run, tried by replay before they are printed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/config/run_config.h"
#include "mantissa/text/dataset.h"
#include "mantissa/train/trainer.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::run {

/// What a replay needs to repeat the failed step.
struct Replay {
  const config::RunConfig& config;
  const weights::ModelSource& source;
  const text::Dataset& data;
  const runtime::Device& device;
  std::filesystem::path state;  // a state directory; empty: the start of the run
  std::size_t used_bytes = 0;   // by the stopped run, whose memory is still allocated
};

/// Returns `config` with the arguments of a cure: --set, --rule and --precision. Throws ConfigError if they
/// do not fit the config.
config::RunConfig with_cure(const config::RunConfig& config, const Cure& cure,
                            std::vector<std::string> overrides = {});

/// Continues from the state with the arguments of each cure, for up to three steps, and marks the cures under
/// which the run does not stop again with Cure::tested. A rule is first joined by the rules that cure the
/// next stops, up to three, and then applied to the whole model. Rules that fail even so are passed on last,
/// and tell it; other cures that fail are dropped. Cures with a stated side effect, and those that start
/// over, are passed on as they are. So are all cures if a replay would need more memory than the machine has
/// or if the data comes from a callback, and those that are left when `stop` requests an end.
std::vector<Cure> tried(const std::vector<Cure>& cures, const Replay& replay, const std::stop_token& stop);

}  // namespace mantissa::run
