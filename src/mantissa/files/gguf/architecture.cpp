#include "mantissa/files/gguf/architecture.h"

#include <fmt/format.h>

#include <algorithm>

namespace mantissa::gguf {
namespace {

using enum Transform;

constexpr NameRule kDecoder[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                 {"output_norm.weight", "model.norm.weight"},
                                 {"output.weight", "lm_head.weight"}};

constexpr NameRule kLlamaLayer[] = {{"attn_norm.weight", "input_layernorm.weight"},
                                    {"attn_q.weight", "self_attn.q_proj.weight", query_heads},
                                    {"attn_q.bias", "self_attn.q_proj.bias", query_heads},
                                    {"attn_k.weight", "self_attn.k_proj.weight", key_heads},
                                    {"attn_k.bias", "self_attn.k_proj.bias", key_heads},
                                    {"attn_v.weight", "self_attn.v_proj.weight"},
                                    {"attn_v.bias", "self_attn.v_proj.bias"},
                                    {"attn_output.weight", "self_attn.o_proj.weight"},
                                    {"attn_output.bias", "self_attn.o_proj.bias"},
                                    {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                    {"ffn_gate.weight", "mlp.gate_proj.weight"},
                                    {"ffn_gate.bias", "mlp.gate_proj.bias"},
                                    {"ffn_up.weight", "mlp.up_proj.weight"},
                                    {"ffn_up.bias", "mlp.up_proj.bias"},
                                    {"ffn_down.weight", "mlp.down_proj.weight"},
                                    {"ffn_down.bias", "mlp.down_proj.bias"}};

/// Mixtral's, in which llama.cpp's "llama" has experts.
constexpr NameRule kMixtralLayer[] = {{"attn_norm.weight", "input_layernorm.weight"},
                                      {"attn_q.weight", "self_attn.q_proj.weight", query_heads},
                                      {"attn_k.weight", "self_attn.k_proj.weight", key_heads},
                                      {"attn_v.weight", "self_attn.v_proj.weight"},
                                      {"attn_output.weight", "self_attn.o_proj.weight"},
                                      {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                      {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
                                      {"ffn_gate_exps.weight", "block_sparse_moe.experts.w1.weight"},
                                      {"ffn_up_exps.weight", "block_sparse_moe.experts.w3.weight"},
                                      {"ffn_down_exps.weight", "block_sparse_moe.experts.w2.weight"}};

/// Of Qwen3-MoE and OLMoE.
constexpr NameRule kExpertLayer[] = {{"attn_norm.weight", "input_layernorm.weight"},
                                     {"attn_q.weight", "self_attn.q_proj.weight"},
                                     {"attn_q_norm.weight", "self_attn.q_norm.weight"},
                                     {"attn_k.weight", "self_attn.k_proj.weight"},
                                     {"attn_k_norm.weight", "self_attn.k_norm.weight"},
                                     {"attn_v.weight", "self_attn.v_proj.weight"},
                                     {"attn_output.weight", "self_attn.o_proj.weight"},
                                     {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                     {"ffn_gate_inp.weight", "mlp.gate.weight"},
                                     {"ffn_gate_exps.weight", "mlp.experts.gate_proj.weight"},
                                     {"ffn_up_exps.weight", "mlp.experts.up_proj.weight"},
                                     {"ffn_down_exps.weight", "mlp.experts.down_proj.weight"}};

constexpr NameRule kQwenLayer[] = {{"attn_norm.weight", "input_layernorm.weight"},
                                   {"attn_q.weight", "self_attn.q_proj.weight"},
                                   {"attn_q.bias", "self_attn.q_proj.bias"},
                                   {"attn_q_norm.weight", "self_attn.q_norm.weight"},
                                   {"attn_k.weight", "self_attn.k_proj.weight"},
                                   {"attn_k.bias", "self_attn.k_proj.bias"},
                                   {"attn_k_norm.weight", "self_attn.k_norm.weight"},
                                   {"attn_v.weight", "self_attn.v_proj.weight"},
                                   {"attn_v.bias", "self_attn.v_proj.bias"},
                                   {"attn_output.weight", "self_attn.o_proj.weight"},
                                   {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                   {"ffn_gate.weight", "mlp.gate_proj.weight"},
                                   {"ffn_up.weight", "mlp.up_proj.weight"},
                                   {"ffn_down.weight", "mlp.down_proj.weight"}};

/// OLMo 2's, whose norms follow attention and MLP.
constexpr NameRule kOlmo2Layer[] = {{"attn_q.weight", "self_attn.q_proj.weight"},
                                    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
                                    {"attn_k.weight", "self_attn.k_proj.weight"},
                                    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
                                    {"attn_v.weight", "self_attn.v_proj.weight"},
                                    {"attn_output.weight", "self_attn.o_proj.weight"},
                                    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
                                    {"ffn_gate.weight", "mlp.gate_proj.weight"},
                                    {"ffn_up.weight", "mlp.up_proj.weight"},
                                    {"ffn_down.weight", "mlp.down_proj.weight"},
                                    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"}};

constexpr NameRule kStableLm[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                  {"output_norm.weight", "model.norm.weight"},
                                  {"output_norm.bias", "model.norm.bias"},
                                  {"output.weight", "lm_head.weight"}};

constexpr NameRule kStableLmLayer[] = {{"attn_norm.weight", "input_layernorm.weight"},
                                       {"attn_norm.bias", "input_layernorm.bias"},
                                       {"attn_q.weight", "self_attn.q_proj.weight"},
                                       {"attn_q.bias", "self_attn.q_proj.bias"},
                                       {"attn_k.weight", "self_attn.k_proj.weight"},
                                       {"attn_k.bias", "self_attn.k_proj.bias"},
                                       {"attn_v.weight", "self_attn.v_proj.weight"},
                                       {"attn_v.bias", "self_attn.v_proj.bias"},
                                       {"attn_output.weight", "self_attn.o_proj.weight"},
                                       {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                       {"ffn_norm.bias", "post_attention_layernorm.bias"},
                                       {"ffn_gate.weight", "mlp.gate_proj.weight"},
                                       {"ffn_up.weight", "mlp.up_proj.weight"},
                                       {"ffn_down.weight", "mlp.down_proj.weight"}};

constexpr NameRule kGemma[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                               {"output_norm.weight", "model.norm.weight", plus_one},
                               {"output.weight", "lm_head.weight"}};

constexpr NameRule kGemmaLayer[] = {
    {"attn_norm.weight", "input_layernorm.weight", plus_one},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", plus_one},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", plus_one},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", plus_one},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", plus_one},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", plus_one}};

constexpr NameRule kGpt2[] = {{"token_embd.weight", "transformer.wte.weight"},
                              {"position_embd.weight", "transformer.wpe.weight"},
                              {"output_norm.weight", "transformer.ln_f.weight"},
                              {"output_norm.bias", "transformer.ln_f.bias"},
                              {"output.weight", "lm_head.weight"}};

constexpr NameRule kGpt2Layer[] = {{"attn_norm.weight", "ln_1.weight"},
                                   {"attn_norm.bias", "ln_1.bias"},
                                   {"attn_qkv.weight", "attn.c_attn.weight", transposed},
                                   {"attn_qkv.bias", "attn.c_attn.bias"},
                                   {"attn_output.weight", "attn.c_proj.weight", transposed},
                                   {"attn_output.bias", "attn.c_proj.bias"},
                                   {"ffn_norm.weight", "ln_2.weight"},
                                   {"ffn_norm.bias", "ln_2.bias"},
                                   {"ffn_up.weight", "mlp.c_fc.weight", transposed},
                                   {"ffn_up.bias", "mlp.c_fc.bias"},
                                   {"ffn_down.weight", "mlp.c_proj.weight", transposed},
                                   {"ffn_down.bias", "mlp.c_proj.bias"}};

constexpr NameRule kRwkv7[] = {{"token_embd.weight", "model.embeddings.weight"},
                               {"token_embd_norm.weight", "model.layers.0.pre_norm.weight"},
                               {"token_embd_norm.bias", "model.layers.0.pre_norm.bias"},
                               {"output_norm.weight", "model.norm.weight"},
                               {"output_norm.bias", "model.norm.bias"},
                               {"output.weight", "lm_head.weight"}};

constexpr NameRule kRwkv7Layer[] = {{"attn_norm.weight", "attn_norm.weight"},
                                    {"attn_norm.bias", "attn_norm.bias"},
                                    {"attn_norm_2.weight", "ffn_norm.weight"},
                                    {"attn_norm_2.bias", "ffn_norm.bias"},
                                    {"time_mix_lerp_fused.weight", "attn.x_r", part, 0},
                                    {"time_mix_lerp_fused.weight", "attn.x_w", part, 1},
                                    {"time_mix_lerp_fused.weight", "attn.x_k", part, 2},
                                    {"time_mix_lerp_fused.weight", "attn.x_v", part, 3},
                                    {"time_mix_lerp_fused.weight", "attn.x_a", part, 4},
                                    {"time_mix_lerp_fused.weight", "attn.x_g", part, 5},
                                    {"time_mix_w0.weight", "attn.w_lora.lora.2.bias"},
                                    {"time_mix_w1.weight", "attn.w_lora.lora.0.weight"},
                                    {"time_mix_w2.weight", "attn.w_lora.lora.2.weight"},
                                    {"time_mix_a0.weight", "attn.a_lora.lora.2.bias"},
                                    {"time_mix_a1.weight", "attn.a_lora.lora.0.weight"},
                                    {"time_mix_a2.weight", "attn.a_lora.lora.2.weight"},
                                    {"time_mix_v0.weight", "attn.v_lora.lora.2.bias"},
                                    {"time_mix_v1.weight", "attn.v_lora.lora.0.weight"},
                                    {"time_mix_v2.weight", "attn.v_lora.lora.2.weight"},
                                    {"time_mix_g1.weight", "attn.g_lora.lora.0.weight"},
                                    {"time_mix_g2.weight", "attn.g_lora.lora.2.weight"},
                                    {"time_mix_k_k.weight", "attn.k_k"},
                                    {"time_mix_k_a.weight", "attn.k_a"},
                                    {"time_mix_r_k.weight", "attn.r_k", flattened},
                                    {"time_mix_receptance.weight", "attn.r_proj.weight"},
                                    {"time_mix_key.weight", "attn.k_proj.weight"},
                                    {"time_mix_value.weight", "attn.v_proj.weight"},
                                    {"time_mix_output.weight", "attn.o_proj.weight"},
                                    {"time_mix_ln.weight", "attn.g_norm.weight"},
                                    {"time_mix_ln.bias", "attn.g_norm.bias"},
                                    {"channel_mix_lerp_k.weight", "ffn.x_k"},
                                    {"channel_mix_key.weight", "ffn.key.weight"},
                                    {"channel_mix_value.weight", "ffn.value.weight"}};

constexpr std::string_view kLayers = "model.layers.";

constexpr Architecture kArchitectures[] = {{"llama", "llama", kDecoder, kLlamaLayer, kLayers},
                                           {"llama", "mixtral", kDecoder, kMixtralLayer, kLayers},
                                           {"qwen2", "qwen2", kDecoder, kQwenLayer, kLayers},
                                           {"qwen3", "qwen3", kDecoder, kQwenLayer, kLayers},
                                           {"qwen3moe", "qwen3_moe", kDecoder, kExpertLayer, kLayers},
                                           {"olmo2", "olmo2", kDecoder, kOlmo2Layer, kLayers},
                                           {"olmoe", "olmoe", kDecoder, kExpertLayer, kLayers},
                                           {"smollm3", "smollm3", kDecoder, kLlamaLayer, kLayers},
                                           {"stablelm", "stablelm", kStableLm, kStableLmLayer, kLayers},
                                           {"granite", "granite", kDecoder, kLlamaLayer, kLayers},
                                           {"gemma2", "gemma2", kGemma, kGemmaLayer, kLayers},
                                           {"gemma3", "gemma3_text", kGemma, kGemmaLayer, kLayers},
                                           {"gpt2", "gpt2", kGpt2, kGpt2Layer, "transformer.h."},
                                           {"rwkv7", "rwkv7", kRwkv7, kRwkv7Layer, kLayers}};

const NameRule* rule_of(std::span<const NameRule> rules, std::string_view hugging_face) {
  const auto found = std::ranges::find(rules, hugging_face, &NameRule::hugging_face);
  return found == rules.end() ? nullptr : &*found;
}

}  // namespace

std::span<const Architecture> all_architectures() {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name, bool experts) {
  if (experts && name == "llama") return architecture_of_model_type("mixtral");
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == std::end(kArchitectures) ? nullptr : found;
}

const Architecture* architecture_of_model_type(std::string_view model_type) {
  const auto* found = std::ranges::find(kArchitectures, model_type, &Architecture::model_type);
  return found == std::end(kArchitectures) ? nullptr : found;
}

std::optional<GgufName> gguf_name(const Architecture& architecture, std::string_view hugging_face) {
  if (const NameRule* rule = rule_of(architecture.model, hugging_face))
    return GgufName{std::string(rule->gguf), rule->transform, rule->part};
  if (!hugging_face.starts_with(architecture.layer_prefix)) return std::nullopt;
  const std::string_view rest = hugging_face.substr(architecture.layer_prefix.size());
  const std::size_t dot = rest.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const NameRule* rule = rule_of(architecture.layers, rest.substr(dot + 1));
  if (rule == nullptr) return std::nullopt;
  return GgufName{fmt::format("blk.{}.{}", rest.substr(0, dot), rule->gguf), rule->transform, rule->part};
}

std::vector<std::int64_t> gguf_shape(const std::vector<std::int64_t>& hugging_face, Transform transform) {
  std::int64_t count = 1;
  for (const std::int64_t size : hugging_face) count *= size;
  switch (transform) {
    case transposed:
      return {hugging_face.rbegin(), hugging_face.rend()};
    case flattened:
      return {count};
    case part:
      return {kParts, 1, 1, count};
    default:
      return hugging_face;
  }
}

std::string copy_in(const Architecture& architecture, std::string_view gguf) {
  constexpr std::string_view kRates = "blk.0.time_mix_a";
  if (architecture.name != "rwkv7" || !gguf.starts_with(kRates)) return {};
  return fmt::format("blk.0.time_mix_v{}", gguf.substr(kRates.size()));
}

bool is_of_experts(std::string_view gguf) {
  return gguf.ends_with("_exps.weight");
}

bool is_router(std::string_view gguf) {
  return gguf.ends_with("ffn_gate_inp.weight");
}

bool is_low_rank(const Architecture& architecture, std::string_view gguf) {
  if (architecture.name != "rwkv7") return false;
  constexpr std::string_view kEnds[] = {"_w1.weight", "_w2.weight", "_a1.weight", "_a2.weight",
                                        "_v1.weight", "_v2.weight", "_g1.weight", "_g2.weight"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return gguf.ends_with(end); });
}

}  // namespace mantissa::gguf
