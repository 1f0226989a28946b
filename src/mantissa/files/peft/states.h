// The initial states of recurrences as RWKV-PEFT's state tuning writes them: a checkpoint of PyTorch with the
// tensors "blocks.N.att.time_state" [heads, value channels, key channels]. https://github.com/JL-er/RWKV-PEFT
#pragma once

#include <filesystem>
#include <memory>

#include "mantissa/engine/model/config.h"
#include "mantissa/files/io/tensor_source.h"
#include "mantissa/files/peft/reader.h"

namespace mantissa::peft {

/// Reads such a file as an adapter of the model `base`. Throws FileError for another file, or a missing
/// state, ShapeError for a state that does not fit the model, and DtypeError for one without floating-point
/// numbers.
PeftAdapter read_time_states(const std::filesystem::path& file, const model::ModelConfig& base);

/// Returns true for the directory of an adapter that is initial states.
bool holds_states(const std::filesystem::path& adapter);

/// Returns the initial states of such an adapter as the tensors of a file of RWKV-PEFT. Throws FileError for
/// tensors that are not the states of layers 0, 1, ….
std::shared_ptr<const io::TensorSource> to_time_states(const std::filesystem::path& adapter);

/// Throws ShapeError unless `tensor` of the file `path` is the initial state of `layer`, or with
/// `of_rwkv_peft` its transpose for each head, and DtypeError for another kind of numbers, which include f64
/// there.
void check_state(const io::TensorInfo& tensor, const model::RecurrentLayer& layer, bool of_rwkv_peft,
                 const std::filesystem::path& path);

}  // namespace mantissa::peft
