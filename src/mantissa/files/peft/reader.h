// Reads adapters in PEFT's layout: adapter_config.json and adapter_model.safetensors (or .bin).
// https://huggingface.co/docs/peft/developer_guides/checkpoint
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/core/numeric/quants.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/config.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::peft {

inline constexpr const char* kWeightsFile = "adapter_model.safetensors";
/// The entry of the weights' metadata with the format that held the base: blocks, or a plain one.
inline constexpr const char* kBaseKey = "mantissa.base";
/// The prefix of tensor names: PeftModel holds the model as base_model.model.
inline constexpr std::string_view kPrefix = "base_model.model.";

struct PeftAdapter {
  std::shared_ptr<const model::Adapter> adapter;
  /// Its tensors, named as the parameters of the graph.
  std::shared_ptr<const io::TensorSource> tensors;
  std::string base;     // base_model_name_or_path; "" if not given
  bool scores = false;  // it is the adapter of a reward model, with its head
  /// The format of the blocks that held the base's linear layers, by the file's metadata. Null: none, or the
  /// file is not of a run.
  std::optional<QuantFormat> base_blocks;
  /// The plain format in which a run held its base. Null: that of its policy, or the file is not of a run.
  std::optional<Scalar> base_plain;
  std::vector<std::string> notes;  // for the user, such as on dropout
};

/// Reads the adapter in `directory`, in PEFT's layout or of a run, or the file of initial states of RWKV-PEFT
/// of that name (files/peft/states.h), for the model `base`. The tensors determine layers and ranks;
/// lora_alpha and alpha_pattern the scales. Throws FileError for a missing or damaged file, for tensors that
/// do not fit the base or each other, and ConfigError for settings of adapter_config.json that are not
/// supported and change the result: other peft_types, trained biases, saved modules, embeddings and others,
/// each by name.
PeftAdapter read_adapter(const std::filesystem::path& directory, const model::ModelConfig& base);

/// Returns the adapter whose parameters are the tensors "master.NAME" of a state of a run. `adapter` has the
/// settings of the run's config.
std::shared_ptr<const io::TensorSource> state_tensors(const std::filesystem::path& state,
                                                      const model::Adapter& adapter);

}  // namespace mantissa::peft
