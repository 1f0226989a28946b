#include "mantissa/precision/compat/foreign_scopes.h"

#include <algorithm>
#include <span>

#include "mantissa/core/base/words.h"

namespace mantissa::compat {
namespace {

/// The local name of a part of a path, below `parent` unless that is empty.
struct Name {
  std::string_view theirs, ours, parent = {};
};

constexpr Name kModules[] = {
    {"transformer", "model"},
    {"gpt_neox", "model"},
    {"h", "layers"},
    {"blocks", "layers"},
    {"attn", "{q,k,v}_proj", "self_attn"},  // Lit-GPT: attn.attn
    {"attn", "self_attn"},
    {"attention", "self_attn"},
    {"att", "self_attn"},
    {"ffn", "mlp"},
    {"feed_forward", "mlp"},
    {"ln_1", "input_layernorm"},
    {"ln1", "input_layernorm"},
    {"norm_1", "input_layernorm"},
    {"attention_norm", "input_layernorm"},
    {"ln_2", "post_attention_layernorm"},
    {"ln2", "post_attention_layernorm"},
    {"norm_2", "post_attention_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ln_f", "norm"},
    {"ln_out", "norm"},
    {"final_layer_norm", "norm"},
    {"wte", "embed_tokens"},
    {"emb", "embed_tokens"},
    {"embed_in", "embed_tokens"},
    {"tok_embeddings", "embed_tokens"},
    {"embed_out", "lm_head"},
    {"head", "lm_head"},
    {"c_attn", "{q,k,v}_proj"},
    {"qkv", "{q,k,v}_proj"},
    {"query_key_value", "{q,k,v}_proj"},
    {"wq", "q_proj"},
    {"wk", "k_proj"},
    {"wv", "v_proj"},
    {"wo", "o_proj"},
    {"c_proj", "o_proj", "self_attn"},
    {"c_proj", "down_proj", "mlp"},
    {"c_proj", "{o,down}_proj"},
    {"proj", "o_proj", "self_attn"},
    {"proj", "down_proj", "mlp"},
    {"dense", "o_proj", "self_attn"},
    {"receptance", "q_proj", "self_attn"},
    {"key", "k_proj", "self_attn"},
    {"value", "v_proj", "self_attn"},
    {"output", "o_proj", "self_attn"},
    {"receptance", "gate_proj", "mlp"},
    {"key", "up_proj", "mlp"},
    {"value", "down_proj", "mlp"},
    {"output", "lm_head"},
    {"w1", "gate_proj"},
    {"w2", "down_proj"},
    {"w3", "up_proj"},
    {"fc_1", "gate_proj"},
    {"fc_2", "up_proj"},
    {"c_fc", "up_proj"},
    {"dense_h_to_4h", "up_proj"},
    {"dense_4h_to_h", "down_proj"},
};

/// A name with several rows may mean any of them; the likeliest one is first.
constexpr Name kOps[] = {
    {"linear", "matmul"},
    {"gemm", "matmul"},
    {"mm", "matmul"},
    {"layernorm", "rmsnorm"},
    {"layer_norm", "layernorm"},
    {"layer_norm", "rmsnorm"},
    {"rmsnorm", "layernorm"},
    {"rms_norm", "rmsnorm"},
    {"rms_norm", "layernorm"},
    {"norm", "rmsnorm"},
    {"norm", "layernorm"},
    {"embedding", "gather"},
    {"embed", "gather"},
    {"lm_head", "log_prob"},
    {"cross_entropy", "log_prob"},
    {"loss", "log_prob"},
    {"sdpa", "attention"},
    {"flash_attention", "attention"},
    {"scaled_dot_product_attention", "attention"},
    {"self_attn", "attention"},
    {"rotary", "rope"},
    {"rotary_emb", "rope"},
    {"silu", "swiglu"},
    {"mlp", "swiglu"},
    {"mlp", "geglu_tanh"},
    {"mlp", "gelu_tanh"},
    {"geglu", "geglu_tanh"},
    {"gelu", "gelu_erf"},
    {"gelu", "gelu_tanh"},
    {"gelu", "geglu_tanh"},
    {"gelu_new", "gelu_tanh"},
    {"gelu_new", "geglu_tanh"},
    {"gelu_pytorch_tanh", "gelu_tanh"},
    {"gelu_pytorch_tanh", "geglu_tanh"},
    {"relu2", "relu_squared"},
    {"residual", "add"},
};

const Name* find(std::span<const Name> names, std::string_view theirs, std::string_view parent) {
  const auto it = std::ranges::find_if(
      names, [&](const Name& n) { return n.theirs == theirs && (n.parent.empty() || n.parent == parent); });
  return it == names.end() ? nullptr : &*it;
}

}  // namespace

std::string translated_scope(std::string_view pattern) {
  std::string out;
  std::string_view parent;
  for (const std::string_view part : split_words(pattern, ".")) {
    const Name* known = find(kModules, part, parent);
    parent = known == nullptr ? part : known->ours;
    out += out.empty() ? "" : ".";
    out += parent;
  }
  return out;
}

std::vector<std::string_view> translated_ops(std::string_view name) {
  std::vector<std::string_view> ours;
  const std::string theirs = lowered(name);
  for (const Name& n : kOps) {
    if (n.theirs == theirs) ours.push_back(n.ours);
  }
  return ours;
}

}  // namespace mantissa::compat
