#include "mantissa/engine/model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/kernels/rope.h"

namespace mantissa::model {

using graph::Builder;
using graph::Init;

struct DecoderNetwork::Tables {
  struct Pair {
    ValueId cos, sin;
  };
  std::vector<Pair> ropes;

  Tables(NetworkBuilder& b, const DecoderSpec& s) {
    for (const Rope& rope : s.ropes) {
      const kernels::RopeTable table{
          .positions = b.positions(), .rotated = s.rotated, .theta = rope.theta, .scaling = rope.scaling};
      // Both tables are computed together, and each constant keeps its half.
      const auto fill = [table](bool want_cos) {
        return [table, want_cos](Matrix out, Scalar angles) {
          const std::int64_t count = table.positions * (table.rotated / 2);
          Storage other(static_cast<std::size_t>(count) * bytes_of(out.type));
          const Matrix scratch{other.data(), out.type, out.ld};
          kernels::RopeTable t = table;
          t.angles = angles;
          kernels::rope_table(t, want_cos ? out : scratch, want_cos ? scratch : out);
        };
      };
      const Shape shape{b.positions(), s.rotated / 2};
      const ValueId cos = b.ops.constant(rope.name + ".cos", shape, fill(true));
      ropes.push_back({cos, b.ops.constant(rope.name + ".sin", shape, fill(false))});
    }
  }
};

ValueId DecoderNetwork::trunk(NetworkBuilder& b, ValueId ids) const {
  const Tables tables(b, s_);
  ValueId x = b.ops.gather("model.embed_tokens", ids, embedding(b), s_.padding_id);
  if (s_.embedding_scale != 1) x = b.ops.scale("model.embed_tokens", x, s_.embedding_scale);
  for (std::size_t layer = 0; layer < s_.layers.size(); ++layer) x = block(b, tables, layer, x);
  return norm(b, "model.norm", x, s_.hidden_size);
}

Head DecoderNetwork::head(NetworkBuilder& b) const {
  const ValueId weight =
      s_.tied_head ? embedding(b) : b.parameter("lm_head.weight", {s_.vocab_size, s_.hidden_size}, normal(1));
  return {"lm_head", weight, s_.logit_cap, 1 / s_.logit_divisor};
}

bool DecoderNetwork::depends_on_length(std::int64_t length) const {
  for (const Rope& rope : s_.ropes) {
    if (rope.scaling.kind == kernels::RopeScaling::Kind::dynamic && length > rope.scaling.original_positions)
      return true;
  }
  return false;
}

ValueId DecoderNetwork::embedding(NetworkBuilder& b) const {
  return b.parameter("model.embed_tokens.weight", {s_.vocab_size, s_.hidden_size}, normal(1));
}

Init DecoderNetwork::normal(double scale) const {
  return {Init::Kind::normal, s_.initializer_range * scale};
}

/// Weights whose results are added to the residual stream, 2L times in total, start smaller, so the variance
/// does not grow with depth.
double DecoderNetwork::residual_scale() const {
  return 1.0 / std::sqrt(2.0 * static_cast<double>(s_.layers.size()));
}

ValueId DecoderNetwork::norm(NetworkBuilder& b, const std::string& scope, ValueId x,
                             std::int64_t channels) const {
  const Init::Kind start = s_.gain_offset == 0 ? Init::Kind::ones : Init::Kind::zeros;
  const ValueId gain = b.parameter(scope + ".weight", {channels}, {start, 0});
  if (s_.norm == Norm::rms) return b.ops.rmsnorm(scope, x, gain, s_.norm_eps, s_.gain_offset);
  const ValueId bias = b.parameter(scope + ".bias", {channels}, {Init::Kind::zeros, 0});
  return b.ops.layernorm(scope, x, gain, bias, s_.norm_eps);
}

/// A split has at most 8 parts, so that more heads are split again.
ValueId DecoderNetwork::own_head_norms(NetworkBuilder& b, const std::string& scope, const std::string& group,
                                       ValueId x, std::int64_t first) const {
  const std::int64_t heads = b.ops.graph().value(x).shape.last() / s_.head_dim;
  if (heads == 1) {
    const std::string of = fmt::format("{}.norms.{}", scope, first);
    const ValueId gain = b.parameter(of + ".weight", {s_.head_dim}, {Init::Kind::ones, 0});
    return b.ops.layernorm(of, x, gain, graph::kNone, s_.norm_eps);
  }
  constexpr std::int64_t kParts = 8;
  const std::int64_t most = (heads + kParts - 1) / kParts;
  std::vector<std::int64_t> sizes;
  for (std::int64_t left = heads; left > 0; left -= most) sizes.push_back(std::min(most, left) * s_.head_dim);
  std::vector<ValueId> parts = b.ops.split(group, x, sizes);
  for (ValueId& part : parts) {
    part = own_head_norms(b, scope, fmt::format("{}.norms.{}", scope, first), part, first);
    first += most;
  }
  return b.ops.concat(group, std::move(parts));
}

ValueId DecoderNetwork::linear(NetworkBuilder& b, const std::string& scope, ValueId x, std::int64_t out,
                               bool bias, double init_scale) const {
  const std::int64_t in = b.ops.graph().value(x).shape.last();
  const ValueId weight = b.parameter(scope + ".weight", {out, in}, normal(init_scale));
  if (!bias) return b.linear(scope, x, weight);
  return b.linear(scope, x, weight, b.parameter(scope + ".bias", {out}, {Init::Kind::zeros, 0}));
}

ValueId DecoderNetwork::block(NetworkBuilder& b, const Tables& tables, std::size_t layer, ValueId x) const {
  const std::string scope = fmt::format("model.layers.{}", layer);
  const auto normed = [&](std::string_view name, ValueId v) {
    return name.empty() ? v : norm(b, fmt::format("{}.{}", scope, name), v, s_.hidden_size);
  };
  const auto added = [&](const std::string& of, ValueId residual, ValueId branch) {
    if (s_.branch_scale != 1) branch = b.ops.multiple(of, branch, s_.branch_scale);
    return b.add(of, residual, branch);
  };
  const bool last = layer + 1 == s_.layers.size();
  const std::string attention_scope = scope + ".self_attn",
                    mlp_scope = fmt::format("{}.{}", scope, is_sparse(layer) ? s_.experts->scope : "mlp");
  ValueId input = normed(s_.norms.before_attention, x);
  ValueId branch = attention(b, tables, s_.layers[layer], attention_scope, input);
  x = added(attention_scope, x, normed(s_.norms.after_attention, branch));
  if (last) x = b.chosen(attention_scope, x);
  if (!s_.parallel) {
    input = normed(s_.norms.before_mlp, x);
  } else if (last) {
    input = b.chosen(mlp_scope, input);
  }
  branch = feed_forward(b, mlp_scope, layer, input);
  return added(mlp_scope, x, normed(s_.norms.after_mlp, branch));
}

DecoderNetwork::Qkv DecoderNetwork::project(NetworkBuilder& b, const std::string& scope, ValueId x) const {
  const std::int64_t queries = s_.heads * s_.head_dim, keys = s_.kv_heads * s_.head_dim;
  const auto projected = [&](const char* name, std::int64_t out) {
    return linear(b, scope + name, x, out, s_.qkv_bias);
  };
  if (!s_.merged_qkv)
    return {projected(".q_proj", queries), projected(".k_proj", keys), projected(".v_proj", keys)};
  const ValueId merged = projected(".qkv_proj", queries + 2 * keys);
  const std::vector<ValueId> parts = b.ops.split(scope + ".qkv_proj", merged, {queries, keys, keys});
  return {parts[0], parts[1], parts[2]};
}

ValueId DecoderNetwork::attention(NetworkBuilder& b, const Tables& tables, const DecoderLayer& layer,
                                  const std::string& scope, ValueId x) const {
  auto [q, k, v] = project(b, scope, x);
  if (s_.qk_norms == QkNorms::own_heads) {
    q = own_head_norms(b, scope + ".q_layernorm", scope + ".q_layernorm", q, 0);
    k = own_head_norms(b, scope + ".k_layernorm", scope + ".k_layernorm", k, 0);
  } else if (s_.qk_norms != QkNorms::none) {
    const bool heads = s_.qk_norms == QkNorms::heads;
    q = norm(b, scope + ".q_norm", q, heads ? s_.head_dim : s_.heads * s_.head_dim);
    k = norm(b, scope + ".k_norm", k, heads ? s_.head_dim : s_.kv_heads * s_.head_dim);
  }
  const Tables::Pair& table = tables.ropes[layer.rope];
  const Builder::QueryKey rotated =
      layer.rotates ? b.ops.rope(scope, {q, k}, table.cos, table.sin, s_.head_dim, s_.rotates_neighbours)
                    : Builder::QueryKey{q, k};
  const ValueId keys = b.cached(scope + (s_.merged_qkv ? ".qkv_proj.k" : ".k_proj"), rotated.k);
  const ValueId values = b.cached(scope + (s_.merged_qkv ? ".qkv_proj.v" : ".v_proj"), v);
  const std::optional<double> scale =
      s_.attention_scale == 0 ? std::nullopt : std::optional(s_.attention_scale);
  const Builder::AttentionOptions options{.heads = s_.heads,
                                          .kv_heads = s_.kv_heads,
                                          .window = layer.window,
                                          .soft_cap = s_.score_cap,
                                          .scale = scale,
                                          .dropout = b.dropout().attention};
  const ValueId out = b.ops.attention(scope, rotated.q, keys, values, options);
  return linear(b, scope + ".o_proj", out, s_.hidden_size, s_.output_bias, residual_scale());
}

ValueId DecoderNetwork::feed_forward(NetworkBuilder& b, const std::string& scope, std::size_t layer,
                                     ValueId x) const {
  return is_sparse(layer) ? sparse_mlp(b, scope, x) : mlp(b, scope, x);
}

ValueId DecoderNetwork::mlp(NetworkBuilder& b, const std::string& scope, ValueId x) const {
  const auto projected = [&](const char* name, std::int64_t out) {
    return linear(b, scope + name, x, out, s_.mlp_bias);
  };
  const std::int64_t width = s_.intermediate_size;
  const std::vector<ValueId> parts =
      s_.merged_gate_up
          ? b.ops.split(scope + ".gate_up_proj", projected(".gate_up_proj", 2 * width), {width, width})
          : std::vector{projected(".gate_proj", width), projected(".up_proj", width)};
  const ValueId inner = s_.gate == Gate::silu ? b.ops.swiglu(scope, parts[0], parts[1], s_.swiglu_limit)
                                              : b.ops.geglu_tanh(scope, parts[0], parts[1]);
  return linear(b, scope + ".down_proj", inner, s_.hidden_size, s_.mlp_bias, residual_scale());
}

/// Σ w·mlp(x) over the chosen experts of each token. Each parameter holds a weight of all experts.
ValueId DecoderNetwork::sparse_mlp(NetworkBuilder& b, const std::string& scope, ValueId x) const {
  const Experts& e = *s_.experts;
  const std::string gate_scope = scope + ".gate";
  const ValueId router = b.parameter(gate_scope + ".weight", {e.count, s_.hidden_size}, normal(1));
  const ValueId logits = b.term(gate_scope, x, router, graph::kNone);
  const std::vector<ValueId> routed =
      b.ops.node("route", gate_scope, {logits}, {{"chosen", e.chosen}, {"normalized", e.normalized}});
  const ValueId weights = routed[0], choice = routed[1];
  b.routers.push_back({logits, choice});
  const auto projected = [&](std::string_view name, ValueId v, std::int64_t out, std::int64_t in,
                             double scale) {
    const std::string of = fmt::format("{}.experts.{}", scope, name);
    const ValueId weight = b.parameter(of + ".weight", {e.count, out, in}, normal(scale));
    return b.experts(of, v, weight, choice);
  };
  const ValueId gate = projected(e.gate, x, e.width, s_.hidden_size, 1),
                up = projected(e.up, x, e.width, s_.hidden_size, 1);
  const ValueId inner = b.ops.swiglu(scope + ".experts", gate, up, s_.swiglu_limit);
  const ValueId results = projected(e.down, inner, s_.hidden_size, e.width, residual_scale());
  return b.ops.node("combine", scope, {results, weights}).front();
}

}  // namespace mantissa::model
