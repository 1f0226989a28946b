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

constexpr std::string_view kLayers = "model.layers.";

constexpr Architecture kArchitectures[] = {{"llama", "llama", kDecoder, kLlamaLayer, kLayers},
                                           {"qwen2", "qwen2", kDecoder, kQwenLayer, kLayers},
                                           {"qwen3", "qwen3", kDecoder, kQwenLayer, kLayers},
                                           {"gemma2", "gemma2", kGemma, kGemmaLayer, kLayers},
                                           {"gemma3", "gemma3_text", kGemma, kGemmaLayer, kLayers},
                                           {"gpt2", "gpt2", kGpt2, kGpt2Layer, "transformer.h."}};

const NameRule* rule_of(std::span<const NameRule> rules, std::string_view hugging_face) {
  const auto found = std::ranges::find(rules, hugging_face, &NameRule::hugging_face);
  return found == rules.end() ? nullptr : &*found;
}

}  // namespace

std::span<const Architecture> all_architectures() {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == std::end(kArchitectures) ? nullptr : found;
}

const Architecture* architecture_of_model_type(std::string_view model_type) {
  const auto* found = std::ranges::find(kArchitectures, model_type, &Architecture::model_type);
  return found == std::end(kArchitectures) ? nullptr : found;
}

std::optional<GgufName> gguf_name(const Architecture& architecture, std::string_view hugging_face) {
  if (const NameRule* rule = rule_of(architecture.model, hugging_face))
    return GgufName{std::string(rule->gguf), rule->transform};
  if (!hugging_face.starts_with(architecture.layer_prefix)) return std::nullopt;
  const std::string_view rest = hugging_face.substr(architecture.layer_prefix.size());
  const std::size_t dot = rest.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const NameRule* rule = rule_of(architecture.layers, rest.substr(dot + 1));
  if (rule == nullptr) return std::nullopt;
  return GgufName{fmt::format("blk.{}.{}", rest.substr(0, dot), rule->gguf), rule->transform};
}

}  // namespace mantissa::gguf
