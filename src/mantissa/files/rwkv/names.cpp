#include "mantissa/files/rwkv/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

namespace mantissa::rwkv {
namespace {

struct Rule {
  std::string_view rwkv, hugging_face;
  Form form = Form::same;
};

using enum Form;

constexpr Rule kModel[] = {{"emb.weight", "model.embeddings.weight"},
                           {"ln_out.weight", "model.norm.weight"},
                           {"ln_out.bias", "model.norm.bias"},
                           {"head.weight", "lm_head.weight"}};

constexpr Rule kLayer[] = {{"ln0.weight", "pre_norm.weight"},
                           {"ln0.bias", "pre_norm.bias"},
                           {"ln1.weight", "attn_norm.weight"},
                           {"ln1.bias", "attn_norm.bias"},
                           {"ln2.weight", "ffn_norm.weight"},
                           {"ln2.bias", "ffn_norm.bias"},
                           {"att.x_r", "attn.x_r"},
                           {"att.x_w", "attn.x_w"},
                           {"att.x_k", "attn.x_k"},
                           {"att.x_v", "attn.x_v"},
                           {"att.x_a", "attn.x_a"},
                           {"att.x_g", "attn.x_g"},
                           {"att.w0", "attn.w_lora.lora.2.bias", row},
                           {"att.w1", "attn.w_lora.lora.0.weight", transposed},
                           {"att.w2", "attn.w_lora.lora.2.weight", transposed},
                           {"att.a0", "attn.a_lora.lora.2.bias", row},
                           {"att.a1", "attn.a_lora.lora.0.weight", transposed},
                           {"att.a2", "attn.a_lora.lora.2.weight", transposed},
                           {"att.v0", "attn.v_lora.lora.2.bias", row},
                           {"att.v1", "attn.v_lora.lora.0.weight", transposed},
                           {"att.v2", "attn.v_lora.lora.2.weight", transposed},
                           {"att.g1", "attn.g_lora.lora.0.weight", transposed},
                           {"att.g2", "attn.g_lora.lora.2.weight", transposed},
                           {"att.k_k", "attn.k_k", row},
                           {"att.k_a", "attn.k_a", row},
                           {"att.r_k", "attn.r_k"},
                           {"att.receptance.weight", "attn.r_proj.weight"},
                           {"att.key.weight", "attn.k_proj.weight"},
                           {"att.value.weight", "attn.v_proj.weight"},
                           {"att.output.weight", "attn.o_proj.weight"},
                           {"att.ln_x.weight", "attn.g_norm.weight"},
                           {"att.ln_x.bias", "attn.g_norm.bias"},
                           {"ffn.x_k", "ffn.x_k", row},
                           {"ffn.key.weight", "ffn.key.weight"},
                           {"ffn.value.weight", "ffn.value.weight"}};

/// Returns the name of the weight `from` under the other of two naming schemes.
std::optional<OtherName> renamed(std::string_view name, std::string_view Rule::*from,
                                 std::string_view Rule::*to, std::string_view layers,
                                 std::string_view other_layers) {
  const auto find = [&](std::span<const Rule> rules, std::string_view part) {
    const auto found = std::ranges::find(rules, part, from);
    return found == rules.end() ? nullptr : &*found;
  };
  if (const Rule* rule = find(kModel, name)) return OtherName{std::string(rule->*to), rule->form};
  if (!name.starts_with(layers)) return std::nullopt;
  const std::string_view rest = name.substr(layers.size());
  const std::size_t dot = std::min(rest.find('.'), rest.size());
  const std::string_view layer = rest.substr(0, dot);
  const Rule* rule = find(kLayer, rest.substr(std::min(dot + 1, rest.size())));
  const bool number =
      !layer.empty() && std::ranges::all_of(layer, [](char c) { return c >= '0' && c <= '9'; });
  if (rule == nullptr || !number) return std::nullopt;
  return OtherName{fmt::format("{}{}.{}", other_layers, layer, rule->*to), rule->form};
}

constexpr std::string_view kBlocks = "blocks.", kLayers = "model.layers.";

}  // namespace

std::optional<OtherName> hugging_face_name(std::string_view rwkv) {
  return renamed(rwkv, &Rule::rwkv, &Rule::hugging_face, kBlocks, kLayers);
}

std::optional<OtherName> rwkv_name(std::string_view hugging_face) {
  return renamed(hugging_face, &Rule::hugging_face, &Rule::rwkv, kLayers, kBlocks);
}

std::string_view without_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "_forward_module.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

bool is_unused(std::string_view rwkv) {
  constexpr std::array<std::string_view, 3> kUnused = {"blocks.0.att.v0", "blocks.0.att.v1",
                                                       "blocks.0.att.v2"};
  return std::ranges::find(kUnused, rwkv) != kUnused.end();
}

std::vector<std::int64_t> rwkv_shape(const std::vector<std::int64_t>& hugging_face, Form form) {
  if (form == Form::row) return {1, 1, hugging_face.front()};
  if (form == Form::transposed) return {hugging_face.rbegin(), hugging_face.rend()};
  return hugging_face;
}

}  // namespace mantissa::rwkv
