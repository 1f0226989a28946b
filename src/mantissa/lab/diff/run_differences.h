// The differences between two states, and between two runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/files/convert/tensor_sets.h"
#include "mantissa/files/io/state.h"
#include "mantissa/lab/diff/config_differences.h"
#include "mantissa/lab/diff/metrics_differences.h"

namespace mantissa::lab {

struct StateDifferences {
  std::int64_t step_a = 0, step_b = 0;
  std::vector<MetricDifference>
      progress;  // entries of state.json: "applied", "data_position", "scaler.scale", …
  convert::TensorDifferences tensors;  // masters in the model's order, then moments and the rest
  bool equal(bool bitwise) const { return progress.empty() && tensors.equal(bitwise); }
};

struct RunDifferences {
  std::vector<ConfigDifference> config;
  std::optional<MetricsDifferences> metrics;  // null if a run has none
  std::vector<std::int64_t> equal_states;     // steps of states that are equal
  std::vector<std::int64_t> only_a, only_b;   // steps of states in one run only
  std::optional<StateDifferences> state;      // the first state that differs; later ones are not compared
  std::optional<convert::TensorDifferences> model;  // null if a run has no model
  bool model_in_a = false, model_in_b = false;

  bool config_equal() const;
  bool equal(bool bitwise) const;
};

/// Returns the tensors of a state in the order of their comparison.
std::vector<std::string> state_order(const io::WeightFiles& files);

/// Reads state.json and compares its checksum. Throws FileError.
io::StateHeader read_state_header(const std::filesystem::path& state);

/// Compares the progress and the tensors of two states, without their configs. The checksums of the tensor
/// files are not compared with state.json: a file that was changed later differs like any other. Throws
/// FileError.
StateDifferences compare_states(const std::filesystem::path& a, const std::filesystem::path& b,
                                const runtime::Device& device);

/// Compares config, metrics, states of equal steps up to the first that differs (for `bitwise`, in a bit),
/// and models. Throws FileError, ConfigError.
RunDifferences compare_runs(const std::filesystem::path& a, const std::filesystem::path& b, bool bitwise,
                            const runtime::Device& device);

}  // namespace mantissa::lab
