#include "mantissa/model/llama.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/graph/autodiff.h"
#include "mantissa/graph/builder.h"
#include "mantissa/kernels/rope.h"

namespace mantissa::model {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Init;
using graph::kNone;
using graph::ValueId;

/// Room for the keys and values of earlier positions; none in training.
struct Cache {
  std::int64_t slots = 0;
  std::int64_t capacity = 0;
};

class Llama {
 public:
  Llama(Graph& graph, const ModelConfig& config, std::int64_t tokens, std::int64_t positions, Cache cache)
      : b_(graph, tokens), c_(config), cache_(cache) {
    const std::int64_t half = c_.head_dim / 2;
    // Both tables are made together; each keeps its own half.
    const auto fill = [positions, config](bool want_cos) {
      return [positions, config, want_cos](Matrix out, Scalar angles) {
        const std::int64_t n = positions * (config.head_dim / 2);
        Storage other(static_cast<std::size_t>(n) * bytes_of(out.type));
        Matrix scratch{other.data(), out.type, out.ld};
        kernels::rope_table(positions, config.head_dim, config.rope_theta, want_cos ? out : scratch,
                            want_cos ? scratch : out, angles);
      };
    };
    cos_ = b_.constant("rope.cos", {positions, half}, fill(true));
    sin_ = b_.constant("rope.sin", {positions, half}, fill(false));
    embedding_ = b_.parameter("model.embed_tokens.weight", {c_.vocab_size, c_.hidden_size}, normal(1));
  }

  /// The last norm's output for `ids`.
  ValueId trunk(ValueId ids) {
    ValueId x = b_.gather("model.embed_tokens", ids, embedding_);
    for (std::int64_t layer = 0; layer < c_.num_hidden_layers; ++layer)
      x = block(fmt::format("model.layers.{}", layer), x);
    return norm("model.norm", x);
  }

  /// The head's weight: its own, or the embedding's.
  ValueId head() {
    if (c_.tie_word_embeddings) return embedding_;
    if (head_ == kNone) head_ = b_.parameter("lm_head.weight", {c_.vocab_size, c_.hidden_size}, normal(1));
    return head_;
  }

  Builder& builder() { return b_; }

 private:
  Init normal(double scale) const { return {Init::Kind::normal, c_.initializer_range * scale}; }

  ValueId norm(const std::string& scope, ValueId x) {
    const ValueId gain = b_.parameter(scope + ".weight", {c_.hidden_size}, {Init::Kind::ones, 0});
    return b_.rmsnorm(scope, x, gain, c_.rms_norm_eps);
  }

  ValueId linear(const std::string& scope, ValueId x, std::int64_t in, std::int64_t out,
                 double init_scale = 1) {
    return b_.matmul(scope, x, b_.parameter(scope + ".weight", {out, in}, normal(init_scale)));
  }

  /// What is added to the residual stream 2L times starts smaller, so that its variance does not grow with
  /// depth.
  double residual_scale() const { return 1.0 / std::sqrt(2.0 * static_cast<double>(c_.num_hidden_layers)); }

  ValueId block(const std::string& scope, ValueId x) {
    x = b_.add(scope + ".self_attn", x, attention(scope + ".self_attn", norm(scope + ".input_layernorm", x)));
    return b_.add(scope + ".mlp", x, mlp(scope + ".mlp", norm(scope + ".post_attention_layernorm", x)));
  }

  ValueId attention(const std::string& scope, ValueId x) {
    const std::int64_t q_size = c_.num_attention_heads * c_.head_dim;
    const std::int64_t kv_size = c_.num_key_value_heads * c_.head_dim;
    const ValueId q = linear(scope + ".q_proj", x, c_.hidden_size, q_size);
    const ValueId k = linear(scope + ".k_proj", x, c_.hidden_size, kv_size);
    const ValueId v = linear(scope + ".v_proj", x, c_.hidden_size, kv_size);
    const Builder::QueryKey rotated = b_.rope(scope, {q, k}, cos_, sin_, c_.head_dim);
    const ValueId keys = keep(scope + ".k_proj", b_.round_kv(scope + ".k_proj", rotated.k), kv_size);
    const ValueId values = keep(scope + ".v_proj", b_.round_kv(scope + ".v_proj", v), kv_size);
    const ValueId out =
        b_.attention(scope, rotated.q, keys, values, c_.num_attention_heads, c_.num_key_value_heads);
    return linear(scope + ".o_proj", out, q_size, c_.hidden_size, residual_scale());
  }

  /// Where there is a cache, the whole of it with the new positions appended.
  ValueId keep(const std::string& scope, ValueId x, std::int64_t width) {
    if (cache_.slots == 0) return x;
    const std::string name = scope + ".cache";  // below the projection: a rule for it reaches the cache too
    return b_.cache_append(name, x, b_.state(name, {cache_.slots, cache_.capacity, width}));
  }

  ValueId mlp(const std::string& scope, ValueId x) {
    const ValueId gate = linear(scope + ".gate_proj", x, c_.hidden_size, c_.intermediate_size);
    const ValueId up = linear(scope + ".up_proj", x, c_.hidden_size, c_.intermediate_size);
    return linear(scope + ".down_proj", b_.swiglu(scope, gate, up), c_.intermediate_size, c_.hidden_size,
                  residual_scale());
  }

  Builder b_;
  ModelConfig c_;
  Cache cache_;
  ValueId cos_ = kNone, sin_ = kNone, embedding_ = kNone, head_ = kNone;
};

Graph build(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train,
            bool with_logits) {
  Graph graph;
  Llama llama(graph, config, tokens, positions, {});
  Builder& b = llama.builder();
  const ValueId ids = b.token_input("ids");
  const ValueId targets = b.token_input("targets");
  const ValueId seed = train ? b.token_numbers("dlog_prob") : kNone;
  const ValueId x = llama.trunk(ids);
  if (with_logits) graph.mark_output("logits", b.logits("lm_head", x, llama.head()));
  const ValueId log_prob = b.log_prob("lm_head", x, llama.head(), targets);
  graph.mark_output("log_prob", log_prob);
  graph.mark_output("lse", graph.node(graph.value(log_prob).producer).outputs[1]);
  if (train) graph::differentiate(graph, log_prob, seed);
  return graph;
}

}  // namespace

Graph build_log_prob(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train) {
  return build(config, tokens, positions, train, false);
}

Graph build_logits(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train) {
  return build(config, tokens, positions, train, true);
}

Graph build_decode(const ModelConfig& config, std::int64_t tokens, std::int64_t slots,
                   std::int64_t capacity) {
  Graph graph;
  Llama llama(graph, config, tokens, capacity, {slots, capacity});
  Builder& b = llama.builder();
  const ValueId ids = b.token_input("ids");
  const ValueId rows = b.row_input("rows", slots);
  const ValueId last = b.select("model.norm", llama.trunk(ids), rows);
  graph.mark_output("logits", b.logits("lm_head", last, llama.head()));
  return graph;
}

}  // namespace mantissa::model
