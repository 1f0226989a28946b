// Configs for tests of configs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/setup/config/run_config.h"
#include "precision/policy/message.h"

namespace mantissa::config {

using precision::message_of;
using Strings = std::vector<std::string>;

inline constexpr const char* kSmallest = R"([run]
steps = 300
[model]
hidden_size = 64
[data]
source = "kk"
)";

inline constexpr const char* kFull = R"(# every section of docs/cli/config-file.md
[run]
name = "demo"
out = "runs/demo"
seed = 7
steps = 300
threads = 2
[model]
model_type = "llama"
hidden_size = 256
num_hidden_layers = 6
num_attention_heads = 8
num_key_value_heads = 4
head_dim = 32
intermediate_size = 688
vocab_size = 259
max_position_embeddings = 1024
rms_norm_eps = 1e-6
rope_theta = 10000.0
rope_scaling = {rope_type = "linear", factor = 2.0, "odd key" = [1, 2.5, "x", true]}
tie_word_embeddings = true
initializer_range = 0.02
[data]
source = ["a.txt", "more/*.txt"]
format = "text"
tokenizer = "byte"
sequence_length = 128
shuffle = false
validation = ["held.txt"]
[train]
objective = "pretrain"
[batch]
global_batch_size = 24
micro_batch_size = 6
leaf = 2
shards = 2
[optimizer]
name = "adamw"
lr = 1e-3
betas = [0.9, 0.99]
eps = 1e-18
weight_decay = 0
max_grad_norm = 0
[schedule]
name = "wsd"
warmup_steps = 0
min_lr_ratio = 0.25
decay_steps = 3
decay = "linear"
[precision]
policy = "bf16-mixed"
residual = "bf16"
rules = [
  "lm_head: compute=f32",
  {match = "*norm*", op = "rmsnorm", compute = "f32"},
]
[checkpoint]
interval = 50
keep = 3
[log]
interval = 10
tensorboard = false
)";

inline RunConfig parse(const std::string& text, const Strings& overrides = {}) {
  return parse_config(text, "dir/run.toml", overrides);
}

/// Returns the error message for kSmallest followed by `lines`.
inline std::string refused(const std::string& lines) {
  return message_of([&] { parse(kSmallest + lines); });
}
inline std::string refused_set(const std::string& override) {
  return message_of([&] { parse(kSmallest, {override}); });
}
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
inline std::string here(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace mantissa::config
