// Checkpoints of RWKV-LM as Hugging Face models, and back.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::rwkv {

struct Checkpoint {
  model::ModelConfig config;
  std::shared_ptr<const io::TensorSource> weights;  // under Hugging Face names
  std::vector<std::string> notes;                   // for the user: what was dropped
};

/// Reads the weights of an RWKV model under RWKV-LM's names. The sizes are those of the tensors,
/// "_forward_module." before names is dropped, and the unused values of layer 0 may be missing. Throws
/// FileError for another generation and for a missing or unknown tensor, ShapeError for one that does not fit
/// the others, and DtypeError for one that is not F32, BF16 or F16, unless `any_float` accepts every
/// floating-point dtype.
Checkpoint open_checkpoint(io::WeightFiles files, const std::filesystem::path& path, bool any_float = false);

/// Returns true for the path of a file with the names of RWKV-LM, of any generation.
bool is_checkpoint(const std::filesystem::path& path);

/// Returns the weights of `config`, an RWKV-7 model under Hugging Face names, under those of RWKV-LM. The
/// unused values of layer 0, which RWKV-LM expects, are zeros. Throws ConfigError if RWKV-LM would compute
/// something else with them, FileError for a missing tensor, and ShapeError for one of another shape.
std::shared_ptr<const io::TensorSource> to_checkpoint(io::WeightFiles files, const model::ModelConfig& config,
                                                      const std::filesystem::path& path);

/// The constant that RWKV-LM and llama.cpp add to the variance in the norm of each head.
inline constexpr double kHeadNormEps = 64e-5;
/// What RWKV-LM adds in all other norms.
inline constexpr double kNormEps = 1e-5;

/// Returns the constant in the norm of each head of the RWKV-7 model `config`.
double head_norm_eps(const model::ModelConfig& config);

}  // namespace mantissa::rwkv
