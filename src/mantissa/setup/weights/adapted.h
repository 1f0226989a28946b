// Models with an adapter: those of configs, of adapters on the disk, and of the states of runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/files/io/state.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::weights {

/// Returns the model of a run with its adapter: one that continues adapter.path, or a new one. Throws as
/// find_model() and peft::select_layers() do.
ModelSource find_run_model(const config::RunConfig& config);

/// Adds the adapter in `directory`, a directory in PEFT's layout or a run with one, to the model. The base is
/// held in the format that the adapter was trained on, if its file names one. Throws as
/// peft::read_adapter() does.
void use_adapter(ModelSource& source, const std::filesystem::path& directory);

/// Returns the base that adapter_config.json names, with the adapter. Throws FileError if that base is not
/// on this machine.
ModelSource model_of_adapter(const std::filesystem::path& directory);
/// Returns the model of a state of a run that trains an adapter: the base of its config, and the adapter of
/// the state. Null for other states.
std::optional<ModelSource> adapter_of_state(const io::StateReader& state,
                                            const std::filesystem::path& folder);

/// Sets the magnitudes of a new DoRA adapter to the norms of the weights' rows, as the program computes them,
/// so that the adapter changes no bit. Its lora_B are zero.
void start_magnitudes(runtime::WeightSet& weights);

/// Writes `directory` in PEFT's layout: the adapter of `source`, with the masters in the checkpoint format of
/// the run's `policy`, and `files`. Returns the xxh64 of the tensors' bytes.
std::uint64_t save_adapter(const std::filesystem::path& directory, const runtime::WeightSet& weights,
                           const ModelSource& source, const precision::Policy& policy,
                           const std::vector<std::pair<std::string, std::string>>& files = {});

}  // namespace mantissa::weights
