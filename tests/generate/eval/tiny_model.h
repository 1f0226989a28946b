// A random Llama of bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/setup/programs/decoding.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::eval {

inline constexpr std::int64_t kTinyPositions = 96;

/// Returns a model with this config and initial weights, in memory.
inline weights::ModelSource tiny_model_of(const model::ModelConfig& config) {
  const precision::Policy policy = precision::Policy::parse("32-true");
  const auto program = programs::compile_decode(config, policy, 8, mantissa::testing::best_device());
  runtime::WeightSet weights(*program, mantissa::testing::best_device());
  weights.initialize(7);
  auto saved = std::make_shared<weights::SavedModel>(weights::save_to_memory(weights, config, policy));
  auto tensors = std::make_shared<io::MemoryTensors>();
  for (const weights::SavedTensor& t : saved->tensors)
    tensors->tensors.push_back({t.name, t.dtype, t.shape, t.bytes});
  tensors->keep = saved;
  return weights::model_in_memory(saved->config_json, tensors);
}

/// Returns a Llama with `more` in its config.
inline weights::ModelSource tiny_model(const nlohmann::json& more = {
                                           {"max_position_embeddings", kTinyPositions}}) {
  return tiny_model_of(mantissa::testing::tiny_llama(false, 256, more));
}

}  // namespace mantissa::eval
