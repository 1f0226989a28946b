// A run directory: the parts that a run replaces, the choice of a state to resume from, and the contents of a
// state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/files/io/state.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/setup/weights/start.h"
#include "mantissa/train/run/orders.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

/// The treatment of an existing run directory.
struct DirectoryOptions {
  std::filesystem::path out;
  bool overwrite = false;
  std::optional<std::int64_t> resume;  // a step; 0: the newest state, or the beginning if there is none
};

/// Throws FileError if the weights of `source` are files in a part of `out` that a run replaces.
void check_place(const std::filesystem::path& out, const weights::ModelSource& source);

/// Returns the state to resume from, or null to start from the beginning. Throws FileError if `out` contains
/// a state and neither `overwrite` nor `resume` is set, or if it has no state of the step.
std::optional<io::FoundState> choose_state(const DirectoryOptions& options);

/// Restores `trainer` from `state`, read from `folder`: masters, moments and compensations, rounded or
/// widened if the precision has changed. Throws FileError or DtypeError if they do not fit, and FileError if
/// the rows of the data or the frozen weights are others than those of the run that wrote the state.
void restore(train::Trainer& trainer, const io::StateReader& state, const std::filesystem::path& folder);

/// Returns the hash of the weights that a run never writes and does not hold in blocks
/// (setup/weights/frozen_hash.h), or "" if rules for a part of the steps can change their formats.
std::string hash_of_fixed(train::Trainer& trainer);
/// Returns the frozen weights of a run, where `fixed` is their hash_of_fixed().
weights::StartBase base_of(const train::Trainer& trainer, const std::string& fixed);

/// Hashes of what a state needs and does not contain: the rows of its step's data (train/run/data_hash.h),
/// and the frozen weights (setup/weights/frozen_hash.h), if all steps have them in the same formats.
struct InputHashes {
  std::string rows, fixed;
};

/// Saves the state of `trainer`. `loss` is that of its last step; `changes` are the changes of the config at
/// resumptions; `validates` tells that the validation which is due after the step has not been done.
/// If ranks share the run, each writes a part. Returns as io::write_state().
std::string save(train::Trainer& trainer, Orders& orders, const std::filesystem::path& out, double loss,
                 const std::vector<std::string>& changes, const InputHashes& hashes, bool validates);

/// Returns config.json of the run's model, as the stage of step `step` has it.
std::string model_json(const train::Trainer& trainer, std::int64_t step);

}  // namespace mantissa::run
