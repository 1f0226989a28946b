// The interface for model code: one call per op, scopes as paths, parameters by the names of the weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mantissa/engine/graph/graph.h"

namespace mantissa::graph {

class Builder {
 public:
  /// Builds for at most `tokens` tokens at once.
  Builder(Graph& graph, std::int64_t tokens) : graph_(graph), tokens_(tokens) {}
  Graph& graph() { return graph_; }
  std::int64_t tokens() const { return tokens_; }

  /// int32 [tokens].
  ValueId token_input(std::string name);
  /// int32 [rows].
  ValueId row_input(std::string name, std::int64_t rows);
  /// Per-token numbers [tokens], given to each run in f32 (f64 under 64-true): gradients of
  /// log-probabilities.
  ValueId token_numbers(std::string name);
  ValueId parameter(std::string name, Shape shape, Init init);
  ValueId constant(std::string name, Shape shape, Fill fill);
  /// A state of sequences: [slots, capacity, ·] of positions, or [slots, ·] of prefixes.
  ValueId state(std::string name, Shape shape, Role role, SequenceState keeps);

  /// Adds a node of any op, by its id (ops/ops.h), and returns its results.
  std::vector<ValueId> node(std::string_view op, const std::string& scope, std::vector<ValueId> inputs,
                            Attributes attributes = {});

  ValueId gather(const std::string& scope, ValueId ids, ValueId table, std::int64_t padding_id = -1);
  /// Returns each token's position in its sequence, int32 [tokens], with the shape of `ids`. A run with a
  /// position of `limit` or more throws ShapeError.
  ValueId positions(const std::string& scope, ValueId ids, std::int64_t limit);
  /// Returns the row of `table` [positions, width] at each token's position.
  ValueId learned_positions(const std::string& scope, ValueId ids, ValueId table);
  ValueId select(const std::string& scope, ValueId x, ValueId rows);
  /// x / √(mean(x²) + eps) · (gain_offset + gain). A gain with fewer channels than x normalizes each head of
  /// that many channels separately.
  ValueId rmsnorm(const std::string& scope, ValueId x, ValueId gain, double eps, double gain_offset = 0);
  /// (x − mean(x)) / √(var(x) + eps) · gain + bias. `bias` may be kNone.
  ValueId layernorm(const std::string& scope, ValueId x, ValueId gain, ValueId bias, double eps);
  /// The same norm, whose result is the residual stream.
  ValueId residual_layernorm(const std::string& scope, ValueId x, ValueId gain, ValueId bias, double eps);
  /// The layout of a Linear layer's weight: [out, in], or [in, out] as in GPT-2's Conv1D.
  enum class WeightLayout : std::uint8_t { out_in, in_out };
  /// x·Wᵀ + `bias` [out]; `bias` may be kNone.
  ValueId matmul(const std::string& scope, ValueId x, ValueId weight, ValueId bias = kNone,
                 WeightLayout layout = WeightLayout::out_in);
  /// The same product without rounding (f32, f64 under 64-true): a term of sum().
  ValueId term(const std::string& scope, ValueId x, ValueId weight, ValueId bias = kNone,
               WeightLayout layout = WeightLayout::out_in);
  /// x + y in f32, rounded once to the format of a layer's result. The addition costs nothing: the product
  /// that computes y adds x before it stores.
  ValueId sum(const std::string& scope, ValueId x, ValueId y);
  /// x·factor in f32, rounded to the format of a layer's result.
  ValueId multiple(const std::string& scope, ValueId x, double factor);
  /// ‖W + factor·B·A‖ of each output of a layer [out], for A [rank, in] and B [out, rank], in f32. A constant
  /// of the gradient.
  ValueId row_norms(const std::string& scope, ValueId weight, ValueId a, ValueId b, double factor,
                    WeightLayout layout);
  /// magnitude / norms · x + `bias`, which may be kNone. All but x are [out].
  ValueId magnitude(const std::string& scope, ValueId x, ValueId magnitude, ValueId norms, ValueId bias);
  /// Returns the complete logits of the head [·, vocabulary], unrounded, for traces and sampling.
  ValueId logits(const std::string& scope, ValueId x, ValueId weight);
  /// x·Wᵀ [·, outputs] of a head that returns numbers instead of logits, unrounded: values and scores.
  ValueId score(const std::string& scope, ValueId x, ValueId weight);
  struct QueryKey {
    ValueId q, k;
  };
  /// Rotates the values that the tables have angles for: in pairs (i, i + half), or of neighbours.
  QueryKey rope(const std::string& scope, QueryKey qk, ValueId cos, ValueId sin, std::int64_t head_dim,
                bool neighbours = false);
  /// Rounds keys or values to the cache's format, in training too.
  ValueId round_kv(const std::string& scope, ValueId x);
  ValueId cache_append(const std::string& scope, ValueId x, ValueId cache);
  struct AttentionOptions {
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;         // a divisor of heads
    std::int64_t window = 0;           // keys visible to a query, including its own; 0: all earlier ones
    double soft_cap = 0;               // c > 0: scores become c·tanh(score / c)
    std::optional<double> scale = {};  // factor of the scores; default 1/√head_dim
    double dropout = 0;                // rate of the probabilities that a training step drops
  };
  /// Causal attention of q over k and v, which are [tokens, ·] or caches [slots, capacity, ·].
  ValueId attention(const std::string& scope, ValueId q, ValueId k, ValueId v,
                    const AttentionOptions& options);
  /// Attention over the whole prefix, with scale 1/√head_dim.
  ValueId attention(const std::string& scope, ValueId q, ValueId k, ValueId v, std::int64_t heads,
                    std::int64_t kv_heads) {
    return attention(scope, q, k, v, AttentionOptions{heads, kv_heads});
  }

  /// The states of prefixes. In decoding `after` is read and replaced. In training, rows continue those of
  /// `before`, and leave theirs in `after`. kNone for both: all sequences begin in this run.
  struct PrefixState {
    ValueId after = kNone, before = kNone;
  };
  /// x[t] + (x[t−1] − x[t])·mix for each coefficient vector: at most 8 of [channels]. `state` [slots,
  /// channels] keeps the last token of each sequence.
  std::vector<ValueId> token_shift(const std::string& scope, ValueId x, const std::vector<ValueId>& mix,
                                   PrefixState state);
  struct RecurrenceInputs {
    ValueId r, decay, k, v, alpha, beta;
  };
  /// The recurrence over a matrix [key_dim, value_dim] for each head (kernels/recurrence.h). `decay` has the
  /// logarithms of the decays, of each key channel or of each head. `state` [slots, heads · key_dim ·
  /// value_dim] as in token_shift(). Sequences begin with `initial` [heads, key_dim, value_dim]; kNone:
  /// zeros.
  ValueId recurrence(const std::string& scope, const RecurrenceInputs& inputs, std::int64_t heads,
                     std::int64_t key_dim, std::int64_t value_dim, PrefixState state,
                     ValueId initial = kNone);
  struct RwkvKeys {
    ValueId alpha, beta, key;
  };
  /// Before and after the recurrence of RWKV-7 (kernels/rwkv_heads.h).
  RwkvKeys rwkv_keys(const std::string& scope, ValueId k, ValueId a, ValueId k_k, ValueId k_a,
                     std::int64_t heads);
  struct RwkvOutputInputs {
    ValueId y, r, key, v, g, r_k, gain, bias;
  };
  ValueId rwkv_output(const std::string& scope, const RwkvOutputInputs& inputs, std::int64_t heads,
                      double eps);

  ValueId tanh(const std::string& scope, ValueId x);
  ValueId sigmoid(const std::string& scope, ValueId x);
  /// factor·sigmoid(x), unrounded: the logarithm of a decay.
  ValueId decay(const std::string& scope, ValueId x, double factor);
  /// x + (y − x)·gate.
  ValueId lerp(const std::string& scope, ValueId x, ValueId y, ValueId gate);
  ValueId relu_squared(const std::string& scope, ValueId x);
  /// GELU by the tanh approximation ("gelu_new", "gelu_pytorch_tanh") and by its definition ("gelu").
  ValueId gelu_tanh(const std::string& scope, ValueId x);
  ValueId gelu_erf(const std::string& scope, ValueId x);
  /// x·sigmoid(1.702·x), the approximation of GELU in CLIP.
  ValueId quick_gelu(const std::string& scope, ValueId x);
  /// silu(gate)·up and gelu_tanh(gate)·up. limit > 0: silu(min(gate, limit)) · the nearest to up within
  /// ±limit.
  ValueId swiglu(const std::string& scope, ValueId gate, ValueId up, double limit = 0);
  ValueId geglu_tanh(const std::string& scope, ValueId gate, ValueId up);

  /// residual + branch. `branch` may be a parameter [width], added to every token.
  ValueId add(const std::string& scope, ValueId residual, ValueId branch);
  /// x·y. `y` may be a parameter [width], applied to every token.
  ValueId mul(const std::string& scope, ValueId x, ValueId y);
  /// x/(1 − rate), or 0 with the probability `rate`, in training steps; else x. `name` distinguishes the
  /// dropouts of a scope. A rate of 0 adds no node.
  ValueId dropout(const std::string& scope, ValueId x, double rate, std::string_view name);
  /// x·factor, on the residual stream.
  ValueId scale(const std::string& scope, ValueId x, double factor);

  /// cap·tanh(x / cap), as log_prob() caps its logits.
  ValueId soft_cap(const std::string& scope, ValueId x, double cap);
  /// Splits x [·, width] into at most 8 parts of `sizes` columns, which must sum to width.
  std::vector<ValueId> split(const std::string& scope, ValueId x, const std::vector<std::int64_t>& sizes);
  /// Returns [·, Σ width] from parts [·, width].
  ValueId concat(const std::string& scope, std::vector<ValueId> parts);

  /// Returns the log-probabilities of `ids` [tokens]. The seed of their gradient is the input "dlog_prob".
  /// With soft_cap c > 0 the logits become c·tanh(logit / c). `entropy`: the node also has the output
  /// "entropy" [tokens], of the distribution after each token (entropy_of()). `l2wrap` w > 0: the gradient of
  /// the largest logit also gets −dlog_prob·w times the logit, which no output shows; not with `entropy`.
  /// `z_loss` z > 0: logits also get the gradient of −dlog_prob·z·lse², in the same way.
  ValueId log_prob(const std::string& scope, ValueId x, ValueId weight, ValueId ids, double soft_cap = 0,
                   bool entropy = false, double l2wrap = 0, double z_loss = 0);
  /// Return the log-sum-exp of the logits, and the entropy, of the node that computes `log_prob`.
  ValueId lse_of(ValueId log_prob) const {
    return graph_.node(graph_.value(log_prob).producer).outputs.at(1);
  }
  ValueId entropy_of(ValueId log_prob) const {
    return graph_.node(graph_.value(log_prob).producer).outputs.at(2);
  }

 private:
  ValueId one(std::string_view op, const std::string& scope, std::vector<ValueId> inputs,
              Attributes attributes = {});

  Graph& graph_;
  std::int64_t tokens_;
};

}  // namespace mantissa::graph
