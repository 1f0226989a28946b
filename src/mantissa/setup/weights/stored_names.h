// The tensors of files that hold the weights of a program's slots: their names, shapes and types are checked.
#pragma once

#include <filesystem>

#include "mantissa/engine/plan/program.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::weights {

/// Returns the weight files of `source`, with one tensor for the experts of a layer.
io::WeightFiles files_of(const ModelSource& source);

/// Returns the tensor of the model's parameter `name` in the files, or null. Files of the bare trunk omit its
/// prefix.
const io::TensorInfo* stored_tensor(const std::string& name, const io::WeightFiles& files,
                                    const model::Family& family);

/// Returns true for the weight of a head that files may lack. It then begins with random values.
bool is_new_head(const plan::Slot& slot);

/// Returns true for a parameter of the model's adapter, which has a source of its own.
bool is_adapters(const model::ModelConfig& config, const plan::Slot& slot);

/// Throws if the files contain other tensors than the model's weights, weights that are not floating-point,
/// or a head with other values than the embedding that it is tied to.
void check_names(const plan::Program& program, const io::WeightFiles& files, const model::ModelConfig& config,
                 const std::filesystem::path& where);

/// Returns the stored tensor of a slot. Throws if it is missing or has the wrong shape.
const io::TensorInfo& tensor_of(const plan::Slot& slot, const io::WeightFiles& files,
                                const plan::Program& program, const ModelSource& source);

}  // namespace mantissa::weights
