// What model files are written with: one call per op, scopes by path, parameters by the weights' own names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/graph/graph.h"

namespace mantissa::graph {

class Builder {
 public:
  /// For at most `tokens` tokens at once.
  Builder(Graph& graph, std::int64_t tokens) : graph_(graph), tokens_(tokens) {}
  Graph& graph() { return graph_; }
  std::int64_t tokens() const { return tokens_; }

  /// int32 [tokens].
  ValueId token_input(std::string name);
  /// int32 [rows].
  ValueId row_input(std::string name, std::int64_t rows);
  /// Per-token numbers [tokens] that come from outside in f32 (f64 under 64-true): gradients of
  /// log-probabilities.
  ValueId token_numbers(std::string name);
  ValueId parameter(std::string name, Shape shape, Init init);
  ValueId constant(std::string name, Shape shape, Fill fill);
  ValueId state(std::string name, Shape shape);

  ValueId gather(const std::string& scope, ValueId ids, ValueId table, std::int64_t padding_id = -1);
  /// Each token's position in its sequence, int32 [tokens], of `ids`' shape. A run with a position of `limit`
  /// or more is a ShapeError.
  ValueId positions(const std::string& scope, ValueId ids, std::int64_t limit);
  /// The row of `table` [positions, width] at each token's position.
  ValueId learned_positions(const std::string& scope, ValueId ids, ValueId table);
  ValueId select(const std::string& scope, ValueId x, ValueId rows);
  /// x / √(mean(x²) + eps) · (gain_offset + gain). A gain of fewer channels than x has normalises each head
  /// of that many channels by itself.
  ValueId rmsnorm(const std::string& scope, ValueId x, ValueId gain, double eps, double gain_offset = 0);
  /// (x − mean(x)) / √(var(x) + eps) · gain + bias; `bias` kNone: without.
  ValueId layernorm(const std::string& scope, ValueId x, ValueId gain, ValueId bias, double eps);
  /// How a Linear layer's weight lies: [out, in], or as in GPT-2's Conv1D [in, out].
  enum class WeightLayout : std::uint8_t { out_in, in_out };
  /// x·Wᵀ, plus `bias` [out] where there is one.
  ValueId matmul(const std::string& scope, ValueId x, ValueId weight, ValueId bias = kNone,
                 WeightLayout layout = WeightLayout::out_in);
  /// The head's product whole: logits [·, vocabulary], unrounded, for traces and sampling.
  ValueId logits(const std::string& scope, ValueId x, ValueId weight);
  struct QueryKey {
    ValueId q, k;
  };
  QueryKey rope(const std::string& scope, QueryKey qk, ValueId cos, ValueId sin, std::int64_t head_dim);
  /// Keys or values as the cache keeps them, in training too.
  ValueId round_kv(const std::string& scope, ValueId x);
  ValueId cache_append(const std::string& scope, ValueId x, ValueId cache);
  struct AttentionOptions {
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;         // divides heads
    std::int64_t window = 0;           // keys that a query sees, its own included; 0: all before it
    double soft_cap = 0;               // c > 0: scores become c·tanh(score / c)
    std::optional<double> scale = {};  // of the scores; 1/√head_dim where it is not set
  };
  /// Causal attention of q over k and v, which are [tokens, ·] or caches [slots, capacity, ·].
  ValueId attention(const std::string& scope, ValueId q, ValueId k, ValueId v,
                    const AttentionOptions& options);
  /// Over the whole prefix, with scale 1/√head_dim.
  ValueId attention(const std::string& scope, ValueId q, ValueId k, ValueId v, std::int64_t heads,
                    std::int64_t kv_heads) {
    return attention(scope, q, k, v, AttentionOptions{heads, kv_heads});
  }

  ValueId relu_squared(const std::string& scope, ValueId x);
  /// GELU by the tanh approximation ("gelu_new", "gelu_pytorch_tanh") and by its definition ("gelu").
  ValueId gelu_tanh(const std::string& scope, ValueId x);
  ValueId gelu_erf(const std::string& scope, ValueId x);
  /// silu(gate)·up and gelu_tanh(gate)·up.
  ValueId swiglu(const std::string& scope, ValueId gate, ValueId up);
  ValueId geglu_tanh(const std::string& scope, ValueId gate, ValueId up);

  /// residual + branch, which may be a parameter [width]: the same for every token.
  ValueId add(const std::string& scope, ValueId residual, ValueId branch);
  /// x·y, which may be a parameter [width]: the same for every token.
  ValueId mul(const std::string& scope, ValueId x, ValueId y);
  /// x·factor, on the residual stream.
  ValueId scale(const std::string& scope, ValueId x, double factor);

  /// cap·tanh(x / cap), as log_prob() caps its logits.
  ValueId soft_cap(const std::string& scope, ValueId x, double cap);
  /// The parts of x [·, width] that lie side by side, of `sizes` columns each, which sum to width; at most 8.
  std::vector<ValueId> split(const std::string& scope, ValueId x, const std::vector<std::int64_t>& sizes);
  /// [·, Σ width] from parts [·, width].
  ValueId concat(const std::string& scope, std::vector<ValueId> parts);

  /// log-probability of `ids` [tokens]; its seed is the input "dlog_prob". With soft_cap c > 0 the logits
  /// become c·tanh(logit / c).
  ValueId log_prob(const std::string& scope, ValueId x, ValueId weight, ValueId ids, double soft_cap = 0);

 private:
  ValueId one(std::string_view op, const std::string& scope, std::vector<ValueId> inputs,
              Attributes attributes = {});

  Graph& graph_;
  std::int64_t tokens_;
};

}  // namespace mantissa::graph
