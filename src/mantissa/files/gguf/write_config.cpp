#include "mantissa/files/gguf/write_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/engine/model/decoder.h"
#include "mantissa/files/gguf/llama3_factors.h"
#include "mantissa/files/gguf/value.h"
#include "mantissa/files/rwkv/checkpoint.h"

namespace mantissa::gguf {
namespace {

using Kind = kernels::RopeScaling::Kind;
using model::DecoderSpec;
using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) {
  throw ConfigError("--format gguf: {}. Fix: write another --format", what);
}

/// Returns the sizes of a decoder, or null for GPT-2 and RWKV-7.
const DecoderSpec* spec_of(const model::ModelConfig& config) {
  const auto* decoder = dynamic_cast<const model::DecoderNetwork*>(config.network.get());
  return decoder == nullptr ? nullptr : &decoder->spec();
}

void check_rope(const DecoderSpec& spec, const Architecture& architecture) {
  for (std::size_t i = 0; i < spec.ropes.size(); ++i) {
    const kernels::RopeScaling& s = spec.ropes[i].scaling;
    if (s.kind == Kind::dynamic) refuse("GGUF files cannot describe dynamic RoPE");
    if (s.kind == Kind::yarn && (s.attention_factor || s.mscale != 0 || s.mscale_all_dim != 0 || !s.truncate))
      refuse("GGUF files cannot describe YaRN with its own attention factor, mscale or truncate");
    if (s.kind == Kind::llama3 && architecture.name != "llama")
      refuse(fmt::format("RoPE scaling \"llama3\" is written for the architecture llama only, not for {}",
                         architecture.name));
  }
}

/// Returns the window that llama.cpp gives to a layer.
std::int64_t window_of(const Architecture& architecture, std::size_t layer, std::int64_t window) {
  if (architecture.name == "gemma2") return layer % 2 == 0 ? window : 0;
  if (architecture.name == "gemma3") return (layer + 1) % 6 != 0 ? window : 0;
  return 0;
}

std::int64_t largest_window(const DecoderSpec& spec) {
  std::int64_t window = 0;
  for (const model::DecoderLayer& layer : spec.layers) window = std::max(window, layer.window);
  return window;
}

void check_windows(const DecoderSpec& spec, const Architecture& architecture) {
  const std::int64_t window = largest_window(spec);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].window != window_of(architecture, i, window)) {
      refuse(fmt::format("layer {} has a window of {} keys, but llama.cpp's {} gives it {} (0: none)", i,
                         spec.layers[i].window, architecture.name, window_of(architecture, i, window)));
    }
  }
}

void check_gemma(const DecoderSpec& s, const Architecture& architecture) {
  const std::int64_t scalar = gemma_query_scale(architecture, static_cast<std::int64_t>(s.layers.size()),
                                                s.heads, s.hidden_size, s.head_dim);
  if (std::abs(s.attention_scale * std::sqrt(static_cast<double>(scalar)) - 1) > 1e-12)
    refuse(
        fmt::format("llama.cpp takes {} for query_pre_attn_scalar, which differs from config.json", scalar));
  if (architecture.name == "gemma2" && !s.tied_head) refuse("llama.cpp's gemma2 has a tied head");
}

void check_olmo2(const DecoderSpec& s) {
  if (s.tied_head) refuse("llama.cpp's olmo2 has a head of its own");
  if (s.qkv_bias) refuse("llama.cpp's olmo2 has no biases");
  if (s.heads * s.head_dim != s.hidden_size) {
    refuse(fmt::format(
        "llama.cpp's olmo2 has heads of embedding_length / head_count values, {} here, and this model of {}",
        s.hidden_size / s.heads, s.head_dim));
  }
}

void check_stablelm(const DecoderSpec& s) {
  if (s.tied_head) refuse("llama.cpp's stablelm has a head of its own");
  if (s.qk_norms != model::QkNorms::none)
    refuse("norms over the heads of q and k are not supported in stablelm");
}

/// llama.cpp's code decides which layers of SmolLM3 rotate q and k.
void check_smollm3(const DecoderSpec& s) {
  constexpr std::size_t kInterval = 4;
  if (s.qkv_bias || s.mlp_bias) refuse("llama.cpp's smollm3 has no biases");
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    if (const bool rotates = (i + 1) % kInterval != 0; s.layers[i].rotates != rotates) {
      refuse(fmt::format("layer {} {} q and k, but in llama.cpp's smollm3 every layer but each fourth does",
                         i, rotates ? "does not rotate" : "rotates"));
    }
  }
}

void check_experts(const model::Experts& e, const Architecture& architecture) {
  if (std::ranges::find(e.layers, false) != e.layers.end())
    refuse(fmt::format("llama.cpp's {} has experts in every layer", architecture.name));
  const bool normalized = architecture.name != "olmoe";
  if (e.normalized != normalized) {
    refuse(fmt::format("llama.cpp's {} has norm_topk_prob {}, and this model {}", architecture.name,
                       normalized, e.normalized));
  }
}

void check_gpt2(const json& config) {
  if (config.value("activation_function", "") != "gelu_new")
    refuse("llama.cpp's gpt2 has the activation gelu_new");
  if (!config.value("scale_attn_weights", true) || config.value("scale_attn_by_inverse_layer_idx", false))
    refuse("llama.cpp's gpt2 divides scores by the root of the size of a head");
}

void check_rwkv7(const model::ModelConfig& config) {
  if (config.tie_word_embeddings) refuse("llama.cpp's rwkv7 has a head of its own");
  if (const double eps = rwkv::head_norm_eps(config); std::abs(eps / rwkv::kHeadNormEps - 1) > 1e-12)
    refuse(fmt::format("llama.cpp's rwkv7 adds {} in the norm of each head, and this model {}",
                       rwkv::kHeadNormEps, eps));
}

class ConfigWriter {
 public:
  ConfigWriter(const Architecture& architecture, HeaderWriter& header)
      : architecture_(architecture), header_(header) {}

  void decoder(const DecoderSpec& s) {
    size("vocab_size", s.vocab_size);
    size("context_length", s.max_positions);
    size("embedding_length", s.hidden_size);
    size("block_count", static_cast<std::int64_t>(s.layers.size()));
    size("feed_forward_length", s.intermediate_size);
    size("attention.head_count", s.heads);
    size("attention.head_count_kv", s.kv_heads);
    size("attention.key_length", s.head_dim);
    size("attention.value_length", s.head_dim);
    size("rope.dimension_count", s.rotated);
    number(s.norm == model::Norm::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
           s.norm_eps);
    if (architecture_.name == "stablelm") header_.add_flag(key("use_parallel_residual"), s.parallel);
    if (architecture_.name == "granite") granite(s);
    rope(s);
    if (s.experts) experts(*s.experts);
    if (const std::int64_t window = largest_window(s); window > 0) size("attention.sliding_window", window);
    if (s.score_cap != 0) number("attn_logit_softcapping", s.score_cap);
    if (s.logit_cap != 0) number("final_logit_softcapping", s.logit_cap);
  }

  void gpt2(const json& c) {
    size("vocab_size", c["vocab_size"]);
    size("context_length", c["n_positions"]);
    size("embedding_length", c["n_embd"]);
    size("block_count", c["n_layer"]);
    size("feed_forward_length", c["n_inner"]);
    size("attention.head_count", c["n_head"]);
    number("attention.layer_norm_epsilon", c["layer_norm_epsilon"]);
  }

  void rwkv7(const json& c) {
    size("vocab_size", c["vocab_size"]);
    size("context_length", kAnyContext);
    size("embedding_length", c["hidden_size"]);
    size("block_count", c["num_hidden_layers"]);
    size("feed_forward_length", c["intermediate_size"]);
    size("wkv.head_size", c["head_dim"]);
    size("attention.decay_lora_rank", c["decay_low_rank_dim"]);
    size("attention.iclr_lora_rank", c["a_low_rank_dim"]);
    size("attention.value_residual_mix_lora_rank", c["v_low_rank_dim"]);
    size("attention.gate_lora_rank", c["gate_low_rank_dim"]);
    size("attention.head_count", 0);  // required by llama.cpp, which does not use it
    number("attention.layer_norm_epsilon", c["norm_eps"]);
  }

  std::vector<std::string> notes;

 private:
  /// The context length that llama.cpp writes for models without a limit.
  static constexpr std::int64_t kAnyContext = std::int64_t{1} << 20;

  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_.name, name); }
  void size(std::string_view name, std::int64_t value) {
    if (value < 0 || value > 0xFFFFFFFF) refuse(fmt::format("{} {} exceeds 32 bits", name, value));
    header_.add(key(name), static_cast<std::uint32_t>(value));
  }
  void number(std::string_view name, double value) {
    const auto narrow = static_cast<float>(value);
    if (shortest(narrow) != value)
      notes.push_back(fmt::format("{} {} is written as the 32-bit number {}", name, value, narrow));
    header_.add(key(name), narrow);
  }

  void granite(const DecoderSpec& s) {
    number("embedding_scale", s.embedding_scale);
    number("residual_scale", s.branch_scale);
    number("logit_scale", s.logit_divisor);
    number("attention.scale", s.attention_scale);
  }

  void experts(const model::Experts& e) {
    size("expert_count", e.count);
    size("expert_used_count", e.chosen);
    if (architecture_.name == "qwen3moe") size("expert_feed_forward_length", e.width);
  }

  void rope(const DecoderSpec& s) {
    const model::Rope& global = s.ropes.front();
    number("rope.freq_base", global.theta);
    if (s.ropes.size() > 1) number("rope.freq_base_swa", s.ropes.back().theta);
    const kernels::RopeScaling& scaling = global.scaling;
    if (scaling.kind != Kind::linear && scaling.kind != Kind::yarn) return;
    header_.add(key("rope.scaling.type"), scaling.kind == Kind::linear ? "linear" : "yarn");
    number("rope.scaling.factor", scaling.factor);
    if (scaling.kind == Kind::linear) return;
    size("rope.scaling.original_context_length", scaling.original_positions);
    number("rope.scaling.yarn_beta_fast", scaling.beta_fast);
    number("rope.scaling.yarn_beta_slow", scaling.beta_slow);
  }

  const Architecture& architecture_;
  HeaderWriter& header_;
};

}  // namespace

const Architecture& writable_architecture(const model::ModelConfig& config) {
  const Architecture* found = architecture_of_model_type(config.model_type);
  if (found == nullptr) {
    refuse(fmt::format("models of type {} are not supported; supported: {}", config.model_type,
                       list_of(names_of(all_architectures(), &Architecture::model_type))));
  }
  if (const DecoderSpec* spec = spec_of(config)) {
    check_rope(*spec, *found);
    check_windows(*spec, *found);
    if (spec->swiglu_limit > 0) refuse("llama.cpp computes this family without swiglu_limit");
    if (found->name.starts_with("gemma")) check_gemma(*spec, *found);
    if (found->name == "olmo2") check_olmo2(*spec);
    if (found->name == "smollm3") check_smollm3(*spec);
    if (found->name == "stablelm") check_stablelm(*spec);
    if (spec->experts) check_experts(*spec->experts, *found);
  } else if (found->name == "rwkv7") {
    check_rwkv7(config);
  } else {
    check_gpt2(model::to_json(config, "float32"));
  }
  return *found;
}

std::vector<std::string> write_config(const model::ModelConfig& config, const Architecture& architecture,
                                      HeaderWriter& header) {
  ConfigWriter writer(architecture, header);
  if (const DecoderSpec* spec = spec_of(config)) {
    writer.decoder(*spec);
  } else if (architecture.name == "rwkv7") {
    writer.rwkv7(model::to_json(config, "float32"));
  } else {
    writer.gpt2(model::to_json(config, "float32"));
  }
  return writer.notes;
}

std::vector<float> rope_factors(const model::ModelConfig& config) {
  const DecoderSpec* spec = spec_of(config);
  if (spec == nullptr || spec->ropes.front().scaling.kind != Kind::llama3) return {};
  const kernels::RopeScaling& s = spec->ropes.front().scaling;
  return llama3_factors(
      {s.factor, s.low_freq_factor, s.high_freq_factor, static_cast<double>(s.original_positions)},
      spec->ropes.front().theta, spec->head_dim);
}

}  // namespace mantissa::gguf
