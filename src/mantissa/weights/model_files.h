// Between model directories and weight sets: find the model a config means, read its weights, write it back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/config/run_config.h"
#include "mantissa/io/memory_tensors.h"
#include "mantissa/model/config.h"
#include "mantissa/runtime/session.h"

namespace mantissa::weights {

struct ModelSource {
  model::ModelConfig config;
  std::filesystem::path weights;      // empty: initialised from the seed
  std::filesystem::path directory{};  // of config.json, with a tokenizer where there is one; empty: none
  bool state = false;                 // `weights` is a run's state: its masters are the weights
  std::shared_ptr<const io::MemoryTensors> memory{};  // the weights, in place of files
};

/// `tensors` as the weights of `source`.
void use_memory(ModelSource& source, std::shared_ptr<const io::MemoryTensors> tensors);
/// A model in memory. `config_json`: the text of its config.json. Throws FileError or ConfigError where it is
/// not one.
ModelSource model_in_memory(const std::string& config_json, std::shared_ptr<const io::MemoryTensors> tensors);

/// What [model] means: a directory with its weights, a config.json, or the sizes written in the config.
ModelSource find_model(const config::ModelSection& section);
/// A Hugging Face directory; a run, which means its model, else its newest state; or a state. Throws
/// FileError where the directory is none of these.
ModelSource find_model(const std::filesystem::path& directory);

/// Fills every master from the files, converting exactly (F64 into f32 rounds to nearest), and refreshes the
/// copies, those under scales by the magnitudes that the files keep (train/model_scales.h). Throws FileError
/// or ShapeError naming a tensor that is missing, misshapen, not finite, or not of the model. Returns what a
/// user should be told: the dtype on disk where it is narrower than the masters.
std::vector<std::string> load_weights(runtime::WeightSet& weights, const ModelSource& source,
                                      const runtime::Device& device);

/// Weights for a program that does not train, with the bits that load_weights() gives. What a step reads in
/// the format in which the file has it is read where the file is mapped (io/mapping.h); what no step reads,
/// such as the f32 masters of matrices that are read as bf16, takes no memory. Checks every value, and throws
/// as load_weights() does.
runtime::WeightSet open_weights(const plan::Program& program, const ModelSource& source,
                                const runtime::Device& device);

/// A session of `program` over the weights that open_weights() gives.
runtime::Session open_session(std::shared_ptr<const plan::Program> program, const ModelSource& source,
                              const runtime::Device& device);

/// Writes `directory` in Hugging Face's layout with the masters in the checkpoint format of `policy`, the
/// run's, and the magnitudes that its scales are made from; returns xxh64 of the tensors' bytes.
std::uint64_t save_model(const std::filesystem::path& directory, const runtime::WeightSet& weights,
                         const model::ModelConfig& config, const precision::Policy& policy,
                         const runtime::Device& device);

/// What save_model() writes, in memory.
struct SavedTensor {
  std::string name;
  io::Dtype dtype = io::Dtype::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};
struct SavedModel {
  std::string config_json;
  std::vector<SavedTensor> tensors;
  std::map<std::string, std::string> metadata;
};
SavedModel save_to_memory(const runtime::WeightSet& weights, const model::ModelConfig& config,
                          const precision::Policy& policy, const runtime::Device& device);

/// One sentence on what `format` costs the masters as a model's; empty where it holds them.
std::string checkpoint_loss(const runtime::WeightSet& weights, Scalar format, const runtime::Device& device);

}  // namespace mantissa::weights
