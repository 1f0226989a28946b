#include "mantissa/engine/graph/builder.h"

#include <cmath>

#include "mantissa/engine/graph/op.h"

namespace mantissa::graph {
namespace {

/// Returns the name of random numbers, as an attribute.
std::int64_t name_of(const std::string& scope, std::string_view what) {
  return static_cast<std::int64_t>(hash_name(scope + "." + std::string(what)));
}

}  // namespace

ValueId Builder::one(std::string_view op, const std::string& scope, std::vector<ValueId> inputs,
                     Attributes attributes) {
  return node(op, scope, std::move(inputs), std::move(attributes)).front();
}

std::vector<ValueId> Builder::node(std::string_view op, const std::string& scope, std::vector<ValueId> inputs,
                                   Attributes attributes) {
  return graph_.node(graph_.add_node(op, scope, std::move(inputs), std::move(attributes))).outputs;
}

ValueId Builder::token_input(std::string name) {
  return graph_.add_value({.name = std::move(name),
                           .kind = ValueKind::input,
                           .role = Role::integer,
                           .shape = Shape::tokens(tokens_)});
}

ValueId Builder::row_input(std::string name, std::int64_t rows) {
  return graph_.add_value(
      {.name = std::move(name), .kind = ValueKind::input, .role = Role::integer, .shape = Shape::rows(rows)});
}

ValueId Builder::token_numbers(std::string name) {
  return graph_.add_value({.name = std::move(name),
                           .kind = ValueKind::input,
                           .role = Role::arithmetic,
                           .shape = Shape::tokens(tokens_)});
}

ValueId Builder::parameter(std::string name, Shape shape, Init init) {
  return graph_.add_value({.name = std::move(name),
                           .kind = ValueKind::parameter,
                           .role = Role::parameter,
                           .shape = std::move(shape),
                           .init = init});
}

ValueId Builder::constant(std::string name, Shape shape, Fill fill) {
  return graph_.add_value({.name = std::move(name),
                           .kind = ValueKind::constant,
                           .role = Role::arithmetic,
                           .shape = std::move(shape),
                           .fill = std::move(fill)});
}

ValueId Builder::state(std::string name, Shape shape, Role role, SequenceState keeps) {
  return graph_.add_value({.name = std::move(name),
                           .kind = ValueKind::state,
                           .role = role,
                           .shape = std::move(shape),
                           .keeps = keeps});
}

ValueId Builder::gather(const std::string& scope, ValueId ids, ValueId table, std::int64_t padding_id) {
  return one("gather", scope, {ids, table}, {{"padding_id", padding_id}});
}

ValueId Builder::positions(const std::string& scope, ValueId ids, std::int64_t limit) {
  return one("positions", scope, {ids}, {{"limit", limit}});
}

ValueId Builder::learned_positions(const std::string& scope, ValueId ids, ValueId table) {
  return gather(scope, positions(scope, ids, graph_.value(table).shape.dim(0).size), table);
}

ValueId Builder::select(const std::string& scope, ValueId x, ValueId rows) {
  return one("select", scope, {x, rows});
}

ValueId Builder::rmsnorm(const std::string& scope, ValueId x, ValueId gain, double eps, double gain_offset) {
  return one("rmsnorm", scope, {x, gain}, {{"eps", eps}, {"gain_offset", gain_offset}});
}

ValueId Builder::layernorm(const std::string& scope, ValueId x, ValueId gain, ValueId bias, double eps) {
  std::vector<ValueId> inputs = {x, gain};
  if (bias != kNone) inputs.push_back(bias);
  return one("layernorm", scope, std::move(inputs), {{"eps", eps}});
}

ValueId Builder::residual_layernorm(const std::string& scope, ValueId x, ValueId gain, ValueId bias,
                                    double eps) {
  std::vector<ValueId> inputs = {x, gain};
  if (bias != kNone) inputs.push_back(bias);
  return one("layernorm", scope, std::move(inputs), {{"eps", eps}, {"residual", true}});
}

ValueId Builder::matmul(const std::string& scope, ValueId x, ValueId weight, ValueId bias,
                        WeightLayout layout) {
  std::vector<ValueId> inputs{x, weight};
  if (bias != kNone) inputs.push_back(bias);
  return one("matmul", scope, std::move(inputs), {{"transposed", layout == WeightLayout::in_out}});
}

ValueId Builder::term(const std::string& scope, ValueId x, ValueId weight, ValueId bias,
                      WeightLayout layout) {
  std::vector<ValueId> inputs{x, weight};
  if (bias != kNone) inputs.push_back(bias);
  return one("matmul", scope, std::move(inputs),
             {{"transposed", layout == WeightLayout::in_out}, {"unrounded", true}});
}

ValueId Builder::sum(const std::string& scope, ValueId x, ValueId y) {
  return one("add", scope, {x, y}, {{"compute", true}});
}

ValueId Builder::multiple(const std::string& scope, ValueId x, double factor) {
  return one("scale", scope, {x}, {{"factor", factor}, {"compute", true}});
}

ValueId Builder::row_norms(const std::string& scope, ValueId weight, ValueId a, ValueId b, double factor,
                           WeightLayout layout) {
  return one("row_norms", scope, {weight, a, b},
             {{"scale", factor}, {"transposed", layout == WeightLayout::in_out}});
}

ValueId Builder::magnitude(const std::string& scope, ValueId x, ValueId magnitude, ValueId norms,
                           ValueId bias) {
  std::vector<ValueId> inputs{x, magnitude, norms};
  if (bias != kNone) inputs.push_back(bias);
  return one("magnitude", scope, std::move(inputs));
}

ValueId Builder::logits(const std::string& scope, ValueId x, ValueId weight) {
  return one("matmul", scope, {x, weight}, {{"logits", true}});
}

ValueId Builder::score(const std::string& scope, ValueId x, ValueId weight) {
  return one("matmul", scope, {x, weight}, {{"score", true}});
}

Builder::QueryKey Builder::rope(const std::string& scope, QueryKey qk, ValueId cos, ValueId sin,
                                std::int64_t head_dim, bool neighbours) {
  Attributes attributes{{"head_dim", head_dim}};
  if (neighbours) attributes = {{"head_dim", head_dim}, {"neighbours", true}};
  const std::vector<ValueId> rotated = node("rope", scope, {qk.q, qk.k, cos, sin}, attributes);
  return {rotated[0], rotated[1]};
}

ValueId Builder::round_kv(const std::string& scope, ValueId x) {
  return one("kv", scope, {x});
}

ValueId Builder::cache_append(const std::string& scope, ValueId x, ValueId cache) {
  return one("cache_append", scope, {x, cache}, {{"capacity", graph_.value(cache).shape.dim(1).size}});
}

ValueId Builder::attention(const std::string& scope, ValueId q, ValueId k, ValueId v,
                           const AttentionOptions& options) {
  const std::int64_t head_dim = graph_.value(q).shape.last() / options.heads;
  const Shape& keys = graph_.value(k).shape;
  const bool cached = !keys.has_tokens();
  return one("attention", scope, {q, k, v},
             {{"heads", options.heads},
              {"kv_heads", options.kv_heads},
              {"head_dim", head_dim},
              {"window", options.window},
              {"soft_cap", options.soft_cap},
              {"scale", options.scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim)))},
              {"slots", cached ? keys.dim(0).size : 0},
              {"capacity", cached ? keys.dim(1).size : 0},
              {"dropout", options.dropout},
              {"name", name_of(scope, "attention_dropout")}});
}

ValueId Builder::dropout(const std::string& scope, ValueId x, double rate, std::string_view name) {
  return rate == 0 ? x : one("dropout", scope, {x}, {{"rate", rate}, {"name", name_of(scope, name)}});
}

std::vector<ValueId> Builder::token_shift(const std::string& scope, ValueId x,
                                          const std::vector<ValueId>& mix, PrefixState state) {
  const bool keeps = state.after != kNone, carries = state.before != kNone;
  std::vector<ValueId> inputs = {x};
  if (keeps) inputs.push_back(state.after);
  if (carries) inputs.push_back(state.before);
  inputs.insert(inputs.end(), mix.begin(), mix.end());
  const NodeId id = graph_.add_node(carries ? "token_shift.carry"
                                    : keeps ? "token_shift.decode"
                                            : "token_shift",
                                    scope, std::move(inputs));
  const std::vector<ValueId>& outputs = graph_.node(id).outputs;
  return {outputs.begin() + (keeps ? 1 : 0), outputs.end()};
}

ValueId Builder::recurrence(const std::string& scope, const RecurrenceInputs& in, std::int64_t heads,
                            std::int64_t key_dim, std::int64_t value_dim, PrefixState state,
                            ValueId initial) {
  const bool keeps = state.after != kNone, carries = state.before != kNone;
  std::vector<ValueId> inputs = {in.r, in.decay, in.k, in.v, in.alpha, in.beta};
  if (keeps) inputs.push_back(state.after);
  if (initial != kNone) inputs.push_back(initial);
  if (carries) inputs.push_back(state.before);
  const NodeId id = graph_.add_node(carries ? "recurrence.carry"
                                    : keeps ? "recurrence.decode"
                                            : "recurrence",
                                    scope, std::move(inputs),
                                    {{"heads", heads},
                                     {"key_dim", key_dim},
                                     {"value_dim", value_dim},
                                     {"initial", initial != kNone},
                                     {"carries", carries}});
  return graph_.node(id).outputs.back();
}

Builder::RwkvKeys Builder::rwkv_keys(const std::string& scope, ValueId k, ValueId a, ValueId k_k, ValueId k_a,
                                     std::int64_t heads) {
  const NodeId id = graph_.add_node("rwkv_keys", scope, {k, a, k_k, k_a}, {{"heads", heads}});
  const std::vector<ValueId>& outputs = graph_.node(id).outputs;
  return {outputs[0], outputs[1], outputs[2]};
}

ValueId Builder::rwkv_output(const std::string& scope, const RwkvOutputInputs& in, std::int64_t heads,
                             double eps) {
  return one("rwkv_output", scope, {in.y, in.r, in.key, in.v, in.g, in.r_k, in.gain, in.bias},
             {{"heads", heads}, {"eps", eps}});
}

ValueId Builder::tanh(const std::string& scope, ValueId x) {
  return one("tanh", scope, {x});
}

ValueId Builder::sigmoid(const std::string& scope, ValueId x) {
  return one("sigmoid", scope, {x});
}

ValueId Builder::decay(const std::string& scope, ValueId x, double factor) {
  return one("decay", scope, {x}, {{"factor", factor}});
}

ValueId Builder::lerp(const std::string& scope, ValueId x, ValueId y, ValueId gate) {
  return one("lerp", scope, {x, y, gate});
}

ValueId Builder::relu_squared(const std::string& scope, ValueId x) {
  return one("relu_squared", scope, {x});
}

ValueId Builder::gelu_tanh(const std::string& scope, ValueId x) {
  return one("gelu_tanh", scope, {x});
}

ValueId Builder::gelu_erf(const std::string& scope, ValueId x) {
  return one("gelu_erf", scope, {x});
}

ValueId Builder::quick_gelu(const std::string& scope, ValueId x) {
  return one("quick_gelu", scope, {x});
}

ValueId Builder::swiglu(const std::string& scope, ValueId gate, ValueId up, double limit) {
  if (limit == 0) return one("swiglu", scope, {gate, up});
  return one("swiglu", scope, {gate, up}, {{"limit", limit}});
}

ValueId Builder::geglu_tanh(const std::string& scope, ValueId gate, ValueId up) {
  return one("geglu_tanh", scope, {gate, up});
}

ValueId Builder::add(const std::string& scope, ValueId residual, ValueId branch) {
  return one("add", scope, {residual, branch});
}

ValueId Builder::mul(const std::string& scope, ValueId x, ValueId y) {
  return one("mul", scope, {x, y});
}

ValueId Builder::scale(const std::string& scope, ValueId x, double factor) {
  return one("scale", scope, {x}, {{"factor", factor}});
}

ValueId Builder::soft_cap(const std::string& scope, ValueId x, double cap) {
  return one("soft_cap", scope, {x}, {{"cap", cap}});
}

std::vector<ValueId> Builder::split(const std::string& scope, ValueId x,
                                    const std::vector<std::int64_t>& sizes) {
  return graph_.node(graph_.add_node("split", scope, {x}, {{"sizes", sizes}})).outputs;
}

ValueId Builder::concat(const std::string& scope, std::vector<ValueId> parts) {
  return one("concat", scope, std::move(parts));
}

ValueId Builder::log_prob(const std::string& scope, ValueId x, ValueId weight, ValueId ids, double soft_cap,
                          bool entropy, double l2wrap, double z_loss) {
  return one("log_prob", scope, {x, weight, ids},
             {{"soft_cap", soft_cap}, {"entropy", entropy}, {"l2wrap", l2wrap}, {"z_loss", z_loss}});
}

}  // namespace mantissa::graph
