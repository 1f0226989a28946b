// The states of a run directory: which one a run goes on from, and what is saved in one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/io/state.h"
#include "mantissa/train/trainer.h"

namespace mantissa::run {

/// How a run treats the directory that it writes.
struct DirectoryOptions {
  std::filesystem::path out;
  bool overwrite = false;
  std::optional<std::int64_t> resume;  // a step; 0: the newest state, or the start where there is none
};

/// Returns the state to go on from; nothing where the run begins at the start. Throws FileError where `out`
/// holds a state and neither `overwrite` nor `resume` is set, or where it has no state of the step.
std::optional<io::FoundState> choose_state(const DirectoryOptions& options);

/// Restores `trainer` from `state`, which is read from `folder`: masters, moments and compensations, rounded
/// or widened where the precision has changed. Throws FileError or DtypeError where they do not fit.
void restore(train::Trainer& trainer, const io::StateReader& state, const std::filesystem::path& folder);

/// Saves the state of `trainer`. `loss`: of its last step; `changes`: what was changed when the run was
/// resumed.
void save(train::Trainer& trainer, const std::filesystem::path& out, double loss,
          const std::vector<std::string>& changes);

/// config.json of the run's model.
std::string model_json(const train::Trainer& trainer);

}  // namespace mantissa::run
