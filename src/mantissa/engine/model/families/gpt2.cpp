// GPT-2 (Radford et al., 2019): LayerNorm, learned positions, merged q, k, v, and weights stored [in, out].
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "mantissa/engine/model/families/families.h"

namespace mantissa::model {
namespace {

using graph::Init;

/// An activation of the MLP: its name, another name of transformers for the same function, and its op.
struct Activation {
  std::string_view name, alias;
  ValueId (graph::Builder::*op)(const std::string& scope, ValueId x);
};

constexpr Activation kActivations[] = {{"gelu_new", "gelu_pytorch_tanh", &graph::Builder::gelu_tanh},
                                       {"gelu", "", &graph::Builder::gelu_erf},
                                       {"quick_gelu", "", &graph::Builder::quick_gelu}};

struct Gpt2Spec {
  std::int64_t vocab_size = 0, hidden_size = 0, inner_size = 0, layers = 0, heads = 0, positions = 0;
  double norm_eps = 1e-5;
  double initializer_range = 0.02;
  const Activation* activation = nullptr;
  bool tied_head = true;
  bool scale_scores = true;             // multiplies by 1/√head_dim
  bool scale_by_inverse_layer = false;  // also multiplies by 1/(layer + 1)
};

class Gpt2 : public Network {
 public:
  explicit Gpt2(const Gpt2Spec& spec) : s_(spec) {}

  ValueId trunk(NetworkBuilder& b, ValueId ids) const override {
    const ValueId tokens = b.ops.gather("transformer.wte", ids, embedding(b));
    const ValueId table = b.parameter("transformer.wpe.weight", {s_.positions, s_.hidden_size}, normal(1));
    const ValueId places = b.ops.learned_positions("transformer.wpe", ids, table);
    ValueId x = b.ops.add("transformer.wpe", tokens, places);
    for (std::int64_t layer = 0; layer < s_.layers; ++layer) x = block(b, layer, x);
    return norm(b, "transformer.ln_f", x);
  }

  Head head(NetworkBuilder& b) const override {
    if (s_.tied_head) return {"lm_head", embedding(b)};
    return {"lm_head", b.parameter("lm_head.weight", {s_.vocab_size, s_.hidden_size}, normal(1))};
  }

  void write(nlohmann::json& out) const override {
    out["n_embd"] = s_.hidden_size;
    out["n_layer"] = s_.layers;
    out["n_head"] = s_.heads;
    out["n_inner"] = s_.inner_size;
    out["n_positions"] = s_.positions;
    out["layer_norm_epsilon"] = s_.norm_eps;
    out["activation_function"] = s_.activation->name;
  }

 private:
  Init normal(double scale) const { return {Init::Kind::normal, s_.initializer_range * scale}; }

  ValueId embedding(NetworkBuilder& b) const {
    return b.parameter("transformer.wte.weight", {s_.vocab_size, s_.hidden_size}, normal(1));
  }

  ValueId norm(NetworkBuilder& b, const std::string& scope, ValueId x) const {
    const ValueId gain = b.parameter(scope + ".weight", {s_.hidden_size}, {Init::Kind::ones, 0});
    const ValueId bias = b.parameter(scope + ".bias", {s_.hidden_size}, {Init::Kind::zeros, 0});
    return b.ops.layernorm(scope, x, gain, bias, s_.norm_eps);
  }

  /// transformers' Conv1D, whose weight is [in, out].
  ValueId linear(NetworkBuilder& b, const std::string& scope, ValueId x, std::int64_t out,
                 double init_scale = 1) const {
    const std::int64_t in = b.ops.graph().value(x).shape.last();
    const ValueId weight = b.parameter(scope + ".weight", {in, out}, normal(init_scale));
    const ValueId bias = b.parameter(scope + ".bias", {out}, {Init::Kind::zeros, 0});
    return b.linear(scope, x, weight, bias, graph::Builder::WeightLayout::in_out);
  }

  ValueId block(NetworkBuilder& b, std::int64_t layer, ValueId x) const {
    const std::string scope = fmt::format("transformer.h.{}", layer);
    const std::string attn = scope + ".attn", mlp = scope + ".mlp";
    x = b.add(attn, x, attention(b, attn, layer, norm(b, scope + ".ln_1", x)));
    if (layer + 1 == s_.layers) x = b.chosen(attn, x);
    const ValueId inner = linear(b, mlp + ".c_fc", norm(b, scope + ".ln_2", x), s_.inner_size);
    const ValueId active = (b.ops.*s_.activation->op)(mlp, inner);
    const ValueId branch = linear(b, mlp + ".c_proj", active, s_.hidden_size, residual_scale());
    return b.add(mlp, x, branch);
  }

  ValueId attention(NetworkBuilder& b, const std::string& scope, std::int64_t layer, ValueId x) const {
    const ValueId merged = linear(b, scope + ".c_attn", x, 3 * s_.hidden_size);
    const std::vector<ValueId> qkv =
        b.ops.split(scope + ".c_attn", merged, {s_.hidden_size, s_.hidden_size, s_.hidden_size});
    const ValueId keys = b.cached(scope + ".c_attn.k", qkv[1]);
    const ValueId values = b.cached(scope + ".c_attn.v", qkv[2]);
    double scale = s_.scale_scores ? 1 / std::sqrt(static_cast<double>(s_.hidden_size / s_.heads)) : 1;
    if (s_.scale_by_inverse_layer) scale /= static_cast<double>(layer + 1);
    const ValueId out = b.ops.attention(
        scope, qkv[0], keys, values,
        {.heads = s_.heads, .kv_heads = s_.heads, .scale = scale, .dropout = b.dropout().attention});
    return linear(b, scope + ".c_proj", out, s_.hidden_size, residual_scale());
  }

  double residual_scale() const { return 1.0 / std::sqrt(2.0 * static_cast<double>(s_.layers)); }

  Gpt2Spec s_;
};

/// transformers maps these names to GPT-2's own names; if both exist, they take precedence.
void check_aliases(const FieldReader& fields) {
  constexpr std::pair<const char*, const char*> kAliases[] = {{"hidden_size", "n_embd"},
                                                              {"num_hidden_layers", "n_layer"},
                                                              {"num_attention_heads", "n_head"},
                                                              {"max_position_embeddings", "n_positions"}};
  for (const auto& [alias, key] : kAliases) {
    const nlohmann::json* value = fields.find(alias);
    if (value == nullptr || (fields.has(key) && *fields.find(key) == *value)) continue;
    fields.fail(alias, fmt::format("is {}, but gpt2 uses the name {}; write that", shown(*value), key));
  }
}

const Activation& read_activation(const FieldReader& fields) {
  constexpr const char* kKey = "activation_function";
  const std::string name = fields.text(kKey, "gelu_new");
  std::vector<std::string_view> names;
  for (const Activation& activation : kActivations) {
    if (activation.name == name || (!activation.alias.empty() && activation.alias == name)) return activation;
    names.push_back(activation.name);
  }
  fields.fail(kKey, fmt::format("is {}, which is not supported here; supported: {}", shown(name),
                                fmt::join(names, ", ")));
}

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  check_aliases(fields);
  Gpt2Spec s;
  s.hidden_size = c.hidden_size = fields.size("n_embd");
  s.layers = c.num_hidden_layers = fields.size("n_layer", std::nullopt, 1000);
  s.heads = fields.size("n_head");
  s.inner_size = fields.size("n_inner", 4 * s.hidden_size);
  s.positions = c.max_position_embeddings = fields.size("n_positions", 1024);
  s.vocab_size = c.vocab_size = fields.size("vocab_size");
  c.positions_are_limited = true;
  s.norm_eps = fields.number("layer_norm_epsilon", 1e-5);
  s.initializer_range = c.initializer_range;
  s.tied_head = c.tie_word_embeddings = fields.flag("tie_word_embeddings", true);
  s.scale_scores = fields.flag("scale_attn_weights", true);
  s.scale_by_inverse_layer = fields.flag("scale_attn_by_inverse_layer_idx", false);
  s.activation = &read_activation(fields);
  fields.refuse_flag("add_cross_attention", "GPT-2 is supported only as a decoder");
  if (s.hidden_size % s.heads != 0 || s.hidden_size / s.heads > 256) {
    fields.fail("n_head", fmt::format("is {}, but must divide n_embd {} into heads of at most 256", s.heads,
                                      s.hidden_size));
  }
  const double weights = static_cast<double>(s.hidden_size) *
                         (2.0 * static_cast<double>(s.vocab_size) + static_cast<double>(s.positions) +
                          static_cast<double>(s.layers) * (4.0 * static_cast<double>(s.hidden_size) +
                                                           2.0 * static_cast<double>(s.inner_size)));
  if (weights > 1e13)
    fields.fail("n_embd",
                fmt::format("gives, with the other sizes, {:.2g} weights, more than 1e+13", weights));
  return std::make_shared<Gpt2>(s);
}

}  // namespace

const Family kGpt2 = {
    .model_type = "gpt2",
    .title = "GPT-2",
    .summary = "LayerNorm, learned positions, merged q, k and v, GELU, weights stored [in, out]",
    .architecture = "GPT2LMHeadModel",
    .classifier = "GPT2ForSequenceClassification",
    .fields = {{"n_embd", Field::Kind::whole, "width of the residual stream"},
               {"n_layer", Field::Kind::whole, "layers"},
               {"n_head", Field::Kind::whole, "heads"},
               {"n_inner", Field::Kind::any, "hidden size of the MLP; 4 × n_embd"},
               {"n_positions", Field::Kind::whole, "learned positions: the longest sequence"},
               {"layer_norm_epsilon", Field::Kind::number, "added to the variance inside the root"},
               {"activation_function", Field::Kind::text, "activation of the MLP"},
               {"scale_attn_weights", Field::Kind::flag, "scores are divided by the root of the head size"},
               {"scale_attn_by_inverse_layer_idx", Field::Kind::flag,
                "scores are divided by the layer's number"}},
    .trunk_prefix = "transformer.",
    .derived = {".attn.bias", ".attn.masked_bias"},
    .read = read,
};

}  // namespace mantissa::model
