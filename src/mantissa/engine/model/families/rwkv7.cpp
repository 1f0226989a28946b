// RWKV-7 "Goose" (Peng et al., arXiv 2503.14456): a recurrence over one matrix for each head in place of
// attention, low-rank gates, and mixtures of each token with its predecessor. Weights have the names of
// flash-linear-attention (RWKV7ForCausalLM).
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/families/families.h"
#include "mantissa/kernels/rwkv_heads.h"

namespace mantissa::model {
namespace {

using graph::Init;
using graph::Role;

struct Rwkv7Spec {
  std::int64_t vocab_size = 0, hidden_size = 0, inner_size = 0, layers = 0, head_dim = 64;
  std::int64_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;
  double norm_eps = 1e-5, head_norm_eps = 64e-5;
  bool tied_head = false;

  std::int64_t heads() const { return hidden_size / head_dim; }

  /// Position of a layer: 0 in the first, 1 in the last.
  double depth(std::int64_t layer) const {
    return layers == 1 ? 0 : static_cast<double>(layer) / static_cast<double>(layers - 1);
  }
  /// 1 in the first layer, 1/L in the last.
  double height(std::int64_t layer) const {
    return 1 - static_cast<double>(layer) / static_cast<double>(layers);
  }
  /// A number for each channel from −½ to ½.
  double linear_of(std::int64_t i) const {
    return hidden_size == 1 ? 0 : static_cast<double>(i) / static_cast<double>(hidden_size - 1) - 0.5;
  }
  /// z·|z| for z from −1 to 1 within each head.
  double zigzag(std::int64_t i) const {
    if (head_dim == 1) return 0;
    const double half = static_cast<double>(head_dim - 1) / 2;
    const double z = (static_cast<double>(i % head_dim) - half) / half;
    return z * std::abs(z);
  }
};

/// −e^(−1/2): the decay of a channel is exp(kLeastDecay·sigmoid(·)), in (0.545, 1).
const double kLeastDecay = -std::exp(-0.5);

class Rwkv7 : public Network {
 public:
  explicit Rwkv7(const Rwkv7Spec& spec) : s_(spec) {}

  ValueId trunk(NetworkBuilder& b, ValueId ids) const override {
    ValueId x = b.ops.gather("model.embeddings", ids, embedding(b));
    const std::string first = "model.layers.0.pre_norm";
    const Norm pre = norm_parameters(b, first);
    x = b.ops.residual_layernorm(first, x, pre.gain, pre.bias, s_.norm_eps);
    ValueId first_values = graph::kNone;
    for (std::int64_t layer = 0; layer < s_.layers; ++layer) {
      const std::string scope = fmt::format("model.layers.{}", layer), attn = scope + ".attn";
      x = b.add(attn, x, time_mixing(b, attn, layer, norm(b, scope + ".attn_norm", x), first_values));
      x = channel_mixing(b, scope, layer, x);
    }
    return norm(b, "model.norm", x);
  }

  Head head(NetworkBuilder& b) const override {
    if (s_.tied_head) return {"lm_head", embedding(b)};
    // An orthogonal matrix of this scale keeps the size of a normalized input.
    const double ratio = static_cast<double>(s_.vocab_size) / static_cast<double>(s_.hidden_size);
    return {"lm_head", b.parameter("lm_head.weight", {s_.vocab_size, s_.hidden_size},
                                   {Init::Kind::orthogonal, 0.5 * std::sqrt(std::max(1.0, ratio))})};
  }

  void write(nlohmann::json& out) const override {
    out["hidden_size"] = s_.hidden_size;
    out["num_hidden_layers"] = s_.layers;
    out["head_dim"] = s_.head_dim;
    out["num_heads"] = s_.heads();
    out["intermediate_size"] = s_.inner_size;
    out["decay_low_rank_dim"] = s_.decay_rank;
    out["a_low_rank_dim"] = s_.rate_rank;
    out["v_low_rank_dim"] = s_.value_rank;
    out["gate_low_rank_dim"] = s_.gate_rank;
    out["norm_eps"] = s_.norm_eps;
    out["value_dim"] = std::vector<std::int64_t>(static_cast<std::size_t>(s_.layers), s_.hidden_size);
  }

 private:
  struct Norm {
    ValueId gain, bias;
  };

  static Init values(std::function<double(std::int64_t)> f) {
    return {.kind = Init::Kind::values, .value = std::move(f)};
  }
  static Init constant(double value) {
    return values([value](std::int64_t) { return value; });
  }

  ValueId embedding(NetworkBuilder& b) const {
    return b.parameter("model.embeddings.weight", {s_.vocab_size, s_.hidden_size},
                       {Init::Kind::uniform, 1e-4});
  }

  Norm norm_parameters(NetworkBuilder& b, const std::string& scope, double gain = 1) const {
    return {b.parameter(scope + ".weight", {s_.hidden_size},
                        gain == 1 ? Init{Init::Kind::ones, 0} : constant(gain)),
            b.parameter(scope + ".bias", {s_.hidden_size}, {Init::Kind::zeros, 0})};
  }

  ValueId norm(NetworkBuilder& b, const std::string& scope, ValueId x) const {
    const Norm n = norm_parameters(b, scope);
    return b.ops.layernorm(scope, x, n.gain, n.bias, s_.norm_eps);
  }

  ValueId linear(NetworkBuilder& b, const std::string& scope, ValueId x, std::int64_t out,
                 const Init& init) const {
    const std::int64_t in = b.ops.graph().value(x).shape.last();
    return b.linear(scope, x, b.parameter(scope + ".weight", {out, in}, init));
  }

  /// The initial second matrix of low-rank layers: RWKV-LM's ortho_init(), which scales those that widen
  /// less.
  Init second_matrix(std::int64_t rank) const {
    const double ratio = static_cast<double>(rank) / static_cast<double>(s_.hidden_size);
    return {Init::Kind::orthogonal, 0.1 * std::sqrt(std::max(1.0, ratio))};
  }

  /// The parameters of two low-rank layers.
  struct LowRank {
    std::string scope;
    ValueId first = graph::kNone, second = graph::kNone, bias = graph::kNone;
  };

  LowRank low_rank(NetworkBuilder& b, std::string scope, std::int64_t rank,
                   std::function<double(std::int64_t)> bias) const {
    LowRank p{std::move(scope)};
    p.first = b.parameter(p.scope + ".lora.0.weight", {rank, s_.hidden_size}, {Init::Kind::zeros, 0});
    p.second = b.parameter(p.scope + ".lora.2.weight", {s_.hidden_size, rank}, second_matrix(rank));
    if (bias) p.bias = b.parameter(p.scope + ".lora.2.bias", {s_.hidden_size}, values(std::move(bias)));
    return p;
  }
  static ValueId narrow(NetworkBuilder& b, const LowRank& p, ValueId x) {
    return b.linear(p.scope + ".lora.0", x, p.first);
  }
  /// The second layer with its bias, without rounding.
  static ValueId widen(NetworkBuilder& b, const LowRank& p, ValueId x) {
    return b.term(p.scope + ".lora.2", x, p.second, p.bias);
  }

  /// The coefficients of a mixture: 1 − (channel / channels)^power.
  ValueId mixture(NetworkBuilder& b, const std::string& name, Shape shape, double power) const {
    const auto channels = static_cast<double>(s_.hidden_size);
    return b.parameter(name, std::move(shape), values([channels, power](std::int64_t i) {
                         return 1 - std::pow(static_cast<double>(i) / channels, power);
                       }));
  }

  /// `first_values`: the values of the first layer, which sets them.
  ValueId time_mixing(NetworkBuilder& b, const std::string& scope, std::int64_t layer, ValueId x,
                      ValueId& first_values) const {
    const std::int64_t width = s_.hidden_size;
    constexpr std::pair<const char*, double> kMixtures[] = {{"x_r", 0.2}, {"x_w", 0.9}, {"x_k", 0.7},
                                                            {"x_v", 0.7}, {"x_a", 0.9}, {"x_g", 0.2}};
    std::vector<ValueId> coefficients;
    for (const auto& [name, power] : kMixtures)
      coefficients.push_back(
          mixture(b, fmt::format("{}.{}", scope, name), {1, 1, width}, power * s_.height(layer)));
    const std::vector<ValueId> mixed = b.ops.token_shift(
        scope, x, coefficients, b.prefix_state(scope + ".token_shift", width, Role::compute));
    const ValueId of_r = mixed[0], of_w = mixed[1], of_k = mixed[2], of_v = mixed[3], of_a = mixed[4],
                  of_g = mixed[5];

    const auto square = [&](const char* name, double scale) {
      return b.parameter(fmt::format("{}.{}.weight", scope, name), {width, width},
                         {Init::Kind::orthogonal, scale});
    };
    const ValueId r_proj = square("r_proj", 1), k_proj = square("k_proj", 0.1), v_proj = square("v_proj", 1);
    const double power = 1 + std::pow(s_.depth(layer), 0.3);
    const LowRank w_lora = low_rank(b, scope + ".w_lora", s_.decay_rank, [s = s_, power](std::int64_t i) {
      return -5.5 + 6 * std::pow(s.linear_of(i) + 0.5, power) + 2.5 * s.zigzag(i);
    });
    const LowRank a_lora = low_rank(b, scope + ".a_lora", s_.rate_rank, [s = s_](std::int64_t i) {
      return -0.19 + 0.3 * s.zigzag(i) + 0.4 * s.linear_of(i);
    });
    LowRank v_lora;
    if (layer > 0) {
      v_lora = low_rank(b, scope + ".v_lora", s_.value_rank,
                        [s = s_](std::int64_t i) { return 0.73 - 0.4 * s.linear_of(i); });
    }
    const LowRank g_lora = low_rank(b, scope + ".g_lora", s_.gate_rank, nullptr);

    // Products that can run together are neighbours (plan/joint_products.h).
    const ValueId r = b.linear(scope + ".r_proj", of_r, r_proj),
                  k = b.linear(scope + ".k_proj", of_k, k_proj);
    ValueId v = b.linear(scope + ".v_proj", of_v, v_proj);
    const ValueId narrow_w = narrow(b, w_lora, of_w), narrow_a = narrow(b, a_lora, of_a);
    const ValueId narrow_v = layer > 0 ? narrow(b, v_lora, of_v) : graph::kNone;
    const ValueId narrow_g = narrow(b, g_lora, of_g);
    const ValueId hidden = b.ops.tanh(scope + ".w_lora.lora.0", narrow_w);
    const ValueId gate_inner = b.ops.sigmoid(scope + ".g_lora.lora.0", narrow_g);

    const ValueId omega = widen(b, w_lora, hidden), wide_a = widen(b, a_lora, narrow_a);
    const ValueId wide_v = layer > 0 ? widen(b, v_lora, narrow_v) : graph::kNone;
    const ValueId gate = b.linear(scope + ".g_lora.lora.2", gate_inner, g_lora.second);

    const ValueId decay = b.ops.decay(scope + ".w_lora", omega, kLeastDecay);
    const ValueId rate = b.ops.sigmoid(scope + ".a_lora", wide_a);
    if (layer == 0) {
      first_values = v;
    } else {
      v = b.ops.lerp(scope, v, first_values, b.ops.sigmoid(scope + ".v_lora", wide_v));
    }

    const ValueId k_k = b.parameter(scope + ".k_k", {width},
                                    values([s = s_](std::int64_t i) { return 0.71 - 0.1 * s.linear_of(i); }));
    const ValueId k_a = b.parameter(scope + ".k_a", {width}, constant(1.02));
    const graph::Builder::RwkvKeys keys = b.ops.rwkv_keys(scope, k, rate, k_k, k_a, s_.heads());
    const ValueId initial = b.initial_state(scope, {s_.heads(), s_.head_dim, s_.head_dim});
    const ValueId y =
        b.ops.recurrence(scope, {r, decay, keys.key, v, keys.alpha, keys.beta}, s_.heads(), s_.head_dim,
                         s_.head_dim, b.prefix_state(scope, width * s_.head_dim), initial);
    const ValueId r_k = b.parameter(scope + ".r_k", {s_.heads(), s_.head_dim}, constant(-0.04));
    const double gain = std::pow(static_cast<double>(layer + 1) / static_cast<double>(s_.layers), 0.7);
    const Norm g_norm = norm_parameters(b, scope + ".g_norm", gain);
    const ValueId out = b.ops.rwkv_output(scope, {y, r, keys.key, v, gate, r_k, g_norm.gain, g_norm.bias},
                                          s_.heads(), s_.head_norm_eps);
    return linear(b, scope + ".o_proj", out, width, {Init::Kind::zeros, 0});
  }

  ValueId channel_mixing(NetworkBuilder& b, const std::string& block, std::int64_t layer, ValueId x) const {
    const std::string scope = block + ".ffn";
    const ValueId coefficients = mixture(b, scope + ".x_k", {s_.hidden_size}, std::pow(s_.height(layer), 4));
    ValueId mixed = b.ops
                        .token_shift(scope, norm(b, block + ".ffn_norm", x), {coefficients},
                                     b.prefix_state(scope + ".token_shift", s_.hidden_size, Role::compute))
                        .front();
    if (layer + 1 == s_.layers) {
      mixed = b.chosen(scope, mixed);
      x = b.chosen(scope, x);
    }
    const ValueId inner = b.ops.relu_squared(
        scope, linear(b, scope + ".key", mixed, s_.inner_size, {Init::Kind::orthogonal, 1}));
    return b.add(scope, x, linear(b, scope + ".value", inner, s_.hidden_size, {Init::Kind::zeros, 0}));
  }

  Rwkv7Spec s_;
};

/// The rank of low-rank layers in new models: about `factor`·√hidden_size, in steps of 32.
std::int64_t rank_of(double factor, std::int64_t hidden_size) {
  const double steps = std::nearbyint(factor * std::sqrt(static_cast<double>(hidden_size)) / 32);
  return std::max<std::int64_t>(32, 32 * static_cast<std::int64_t>(steps));
}

/// Throws if a layer's values are wider than its keys.
void check_value_dim(const FieldReader& fields, std::int64_t hidden_size) {
  const nlohmann::json* const value = fields.find("value_dim");
  if (value == nullptr) return;
  const std::vector<nlohmann::json> all =
      value->is_array() ? value->get<std::vector<nlohmann::json>>() : std::vector{*value};
  for (const nlohmann::json& one : all) {
    if (!one.is_number_integer() || one.get<std::int64_t>() != hidden_size)
      fields.fail("value_dim",
                  fmt::format("is {}; values of another width than hidden_size {} are not supported",
                              shown(*value), hidden_size));
  }
}

/// Returns the hidden size of the channel mixing if intermediate_size is missing: hidden_ratio · width,
/// rounded up to 32.
std::int64_t default_inner_size(const FieldReader& fields, std::int64_t width) {
  const double size = fields.number("hidden_ratio", 4) * static_cast<double>(width);
  if (fields.has("intermediate_size")) return 32;  // the ratio does not count
  if (size < 1 || size > static_cast<double>(kLargestSize - 31)) {
    fields.fail(
        "hidden_ratio",
        fmt::format("is {:g}, which gives the channel mixing {:g} channels (times hidden_size {}). Fix: set "
                    "intermediate_size",
                    fields.number("hidden_ratio", 4), size, width));
  }
  return (static_cast<std::int64_t>(size) + 31) / 32 * 32;
}

std::shared_ptr<const Network> read(const FieldReader& fields, ModelConfig& c) {
  Rwkv7Spec s;
  s.vocab_size = c.vocab_size = fields.size("vocab_size");
  s.hidden_size = c.hidden_size = fields.size("hidden_size", 2048);
  s.layers = c.num_hidden_layers = fields.size("num_hidden_layers", 24, 1000);
  const std::int64_t heads = fields.has("num_heads") ? fields.size("num_heads") : 0;
  if (heads > s.hidden_size)
    fields.fail("num_heads",
                fmt::format("is {}, more than the {} channels of hidden_size", heads, s.hidden_size));
  s.head_dim = fields.size("head_dim", heads > 0 ? s.hidden_size / heads : 64);
  if (s.hidden_size % s.head_dim != 0 || s.head_dim > kernels::kMostHeadChannels) {
    fields.fail("head_dim", fmt::format("is {}, but must divide hidden_size {} into heads of at most {}",
                                        s.head_dim, s.hidden_size, kernels::kMostHeadChannels));
  }
  if (fields.size("num_heads", s.heads()) != s.heads())
    fields.fail("num_heads", fmt::format("is {}, but hidden_size {} has {} heads of {}",
                                         fields.size("num_heads"), s.hidden_size, s.heads(), s.head_dim));
  s.inner_size = fields.size("intermediate_size", default_inner_size(fields, s.hidden_size));
  s.decay_rank = fields.size("decay_low_rank_dim", rank_of(2.5, s.hidden_size));
  s.rate_rank = fields.size("a_low_rank_dim", rank_of(2.5, s.hidden_size));
  s.value_rank = fields.size("v_low_rank_dim", rank_of(1.7, s.hidden_size));
  s.gate_rank = fields.size("gate_low_rank_dim", rank_of(5, s.hidden_size));
  s.norm_eps = fields.number("norm_eps", 1e-5);
  s.head_norm_eps = fields.number("group_norm_eps", static_cast<double>(s.head_dim) * s.norm_eps);
  s.tied_head = c.tie_word_embeddings = fields.flag("tie_word_embeddings", false);
  require_activation(fields, "hidden_act", "sqrelu", "relu2");
  if (!fields.flag("norm_bias", true))
    fields.fail("norm_bias", "is false; norms without biases are not supported");
  if (!fields.flag("norm_first", true))
    fields.fail("norm_first", "is false; RWKV-7 normalizes the embedding before its first layer");
  fields.refuse("attn", "layers of attention between those of RWKV-7 are not supported");
  check_value_dim(fields, s.hidden_size);
  return std::make_shared<Rwkv7>(s);
}

}  // namespace

const Family kRwkv7 = {
    .model_type = "rwkv7",
    .title = "RWKV-7",
    .summary =
        "a recurrence over one matrix for each head in place of attention, low-rank gates, mixtures of each token "
        "with its predecessor; the class is flash-linear-attention's ([rwkv.md](rwkv.md))",
    .architecture = "RWKV7ForCausalLM",
    .classifier = "RWKV7ForSequenceClassification",
    .fields = {{"hidden_size", Field::Kind::whole, "width of the residual stream"},
               {"num_hidden_layers", Field::Kind::whole, "layers"},
               {"head_dim", Field::Kind::whole, "channels of a head; 64"},
               {"num_heads", Field::Kind::any, "heads; hidden_size / head_dim"},
               {"intermediate_size", Field::Kind::any, "hidden size of the channel mixing"},
               {"hidden_ratio", Field::Kind::any, "the same, in units of hidden_size, if that is missing; 4"},
               {"decay_low_rank_dim", Field::Kind::any, "rank of the decay's layers (w)"},
               {"a_low_rank_dim", Field::Kind::any, "rank of the learning rate's layers (a)"},
               {"v_low_rank_dim", Field::Kind::any, "rank of the layers that mix in the first values (v)"},
               {"gate_low_rank_dim", Field::Kind::any, "rank of the gate's layers (g)"},
               {"norm_eps", Field::Kind::number, "added to the variance inside the root"},
               {"group_norm_eps", Field::Kind::any, "the same in the norm of each head; head_dim · norm_eps"},
               {"value_dim", Field::Kind::any, "width of the values; hidden_size"},
               {"max_position_embeddings", Field::Kind::whole,
                "context of pre-training; not a limit, and not read"},
               {"hidden_act", Field::Kind::text, "activation of the channel mixing: sqrelu"},
               {"norm_bias", Field::Kind::flag, "norms have biases: true"},
               {"norm_first", Field::Kind::flag, "the embedding is normalized: true"},
               {"attn", Field::Kind::any, "layers of attention: none"}},
    .derived = {},
    .chat_template = "rwkv",
    .read = read,
};

}  // namespace mantissa::model
