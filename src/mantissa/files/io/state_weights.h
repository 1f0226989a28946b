// The weights of a resumable state as a model: the averages that its optimizer declares for evaluation, or
// the masters of parameters without one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/files/io/checkpoint.h"

namespace mantissa::io {

/// The prefix of the names of averages; that of masters is kMasterPrefix.
inline constexpr std::string_view kStateAverages = "average.";

/// A weight: its name, and its tensor in the state, with the name there.
struct StateWeight {
  std::string name;
  TensorInfo tensor;
};
/// Returns the weights of a state with `tensors`, in the order of its masters.
std::vector<StateWeight> state_weights(const std::vector<TensorInfo>& tensors);

/// Returns "averages" if the weights of a state are those, or "masters".
std::string_view kind_of_weights(const std::vector<StateWeight>& weights);

/// Opens the weights of the file `state` under their own names.
WeightFiles open_state_weights(const std::filesystem::path& state);

}  // namespace mantissa::io
