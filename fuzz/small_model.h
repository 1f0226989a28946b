// The config of a small model, as the base of adapters and the source of a vocabulary of bytes.
#pragma once

#include "mantissa/engine/model/config.h"

namespace mantissa::fuzz {

inline const model::ModelConfig& small_model() {
  static const model::ModelConfig config = model::parse_model_config(
      nlohmann::json::parse(R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 8,
        "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64})"),
      "config.json");
  return config;
}

}  // namespace mantissa::fuzz
