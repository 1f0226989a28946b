// Model directories and weight sets: finds the model of a config, reads its weights, and writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/files/io/memory_tensors.h"
#include "mantissa/files/io/tensor_source.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::weights {

struct ModelSource {
  model::ModelConfig config;
  std::filesystem::path weights;  // empty: initialized from the seed
  // contains config.json (not for a state) and the tokenizer, if there is one; empty: none
  std::filesystem::path directory{};
  bool state = false;  // `weights` is a run's state, whose masters are the weights
  std::shared_ptr<const io::MemoryTensors> memory{};  // the weights, in place of files
  std::shared_ptr<const io::TensorSource> tensors{};  // the weights of a GGUF file or of RWKV-LM
  /// The tokenizer's and generation's files of a GGUF file by their names in a directory; null for others.
  std::shared_ptr<const std::map<std::string, std::string>> files{};
  /// The tensors of config.adapter, named as its parameters. Null: none, or initialized from the seed.
  std::shared_ptr<const io::TensorSource> adapter{};
  std::vector<std::string> notes{};  // for the user, on how the adapter was read
};

/// Returns the text of the model's file `name`, such as "generation_config.json", or null if it has none.
std::optional<std::string> beside_weights(const ModelSource& source, const std::string& name);

/// Makes `tensors` the weights of `source`.
void use_memory(ModelSource& source, std::shared_ptr<const io::MemoryTensors> tensors);
/// Returns a model in memory. `config_json` is the text of its config.json. Throws FileError or ConfigError
/// if that is invalid.
ModelSource model_in_memory(const std::string& config_json, std::shared_ptr<const io::MemoryTensors> tensors);

/// Returns the model of [model]: a directory with weights, a GGUF file, a config.json, or inline sizes.
ModelSource find_model(const config::ModelSection& section);
/// Returns the model of a Hugging Face directory, one file of weights beside its config.json, a GGUF file, an
/// adapter whose base is on this machine, a state, or a run, which stands for its model or adapter or,
/// without one, for its newest state. Throws FileError for any other path.
ModelSource find_model(const std::filesystem::path& path);

/// Fills every master from the files, rounded to nearest through f32 (f64 for f64 masters), and refreshes the
/// copies; scaled copies use the magnitudes in the files (setup/weights/model_scales.h). Throws FileError or
/// ShapeError with the tensor that is missing, has the wrong shape, is not finite, exceeds the range of its
/// master, or is not part of the model. The heads of critics and reward models (engine/model/graphs.h) are
/// initialized from `seed` if the files lack them. Returns notes for the user, such as the dtype of files
/// narrower than the masters.
std::vector<std::string> load_weights(runtime::WeightSet& weights, const ModelSource& source,
                                      std::uint64_t seed = 0);

/// Returns weights for a program whose parameters are fixed, or fixed but for those of an adapter, with the
/// same bits as load_weights(). An adapter without tensors, and all weights of a source without files, are
/// initialized from `seed`. Weights that a step
/// reads in the format of the file are used in the mapped file (core/disk/mapping.h), unless they are smaller
/// than a page, and matrices of a GGUF file in their quantized blocks, which steps dequantize while they read
/// them. Weights that no step reads, such as the f32 masters of matrices that are read as bf16, use no
/// memory. Weights that the program holds in blocks are quantized from the values of the files, and what this
/// loses is added to `notes`. Checks every value, and throws as load_weights() does.
runtime::WeightSet open_weights(const plan::Program& program, const ModelSource& source,
                                const runtime::Device& device, std::uint64_t seed = 0,
                                std::vector<std::string>* notes = nullptr);

/// The bytes of the weights that a program without training reads, as open_weights() keeps them.
struct ReadBytes {
  std::vector<std::size_t> of_buffer;  // 0: not a weight, or not read
  std::size_t all = 0;
};
ReadBytes read_bytes(const plan::Program& program, const ModelSource& source);

/// Returns a session of `program` with the weights of open_weights().
runtime::Session open_session(std::shared_ptr<const plan::Program> program, const ModelSource& source,
                              const runtime::Device& device);

/// Writes `directory` in Hugging Face's layout, with the masters in the checkpoint format of the run's
/// `policy` and the magnitudes for its scales. Also writes `files`, such as a tokenizer's: names and
/// contents. Returns the xxh64 of the tensors' bytes.
std::uint64_t save_model(const std::filesystem::path& directory, const runtime::WeightSet& weights,
                         const model::ModelConfig& config, const precision::Policy& policy,
                         std::vector<std::pair<std::string, std::string>> files = {});

/// Returns the masters that a run writes, those that are not fixed, in the policy's checkpoint format.
/// Borrows `weights`.
std::vector<io::TensorToWrite> tensors_of(const runtime::WeightSet& weights, const precision::Policy& policy);
/// Returns the metadata of the file with these tensors.
std::map<std::string, std::string> metadata_of(const runtime::WeightSet& weights,
                                               const precision::Policy& policy);

/// The output of save_model(), in memory.
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
                          const precision::Policy& policy);

/// Returns one sentence on the loss of storing the masters in `format`, or "" without a loss.
std::string checkpoint_loss(const runtime::WeightSet& weights, Scalar format);

}  // namespace mantissa::weights
