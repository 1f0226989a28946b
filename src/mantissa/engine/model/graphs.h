// The graphs of a model of any family: log-probabilities and scores for training, logits for traces, and
// decoding.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "mantissa/engine/graph/graph.h"
#include "mantissa/engine/model/config.h"
#include "mantissa/engine/model/network.h"

namespace mantissa::model {

// If the config has an adapter (engine/model/adapter.h), the graphs contain it, and every other parameter is
// frozen.

/// Returns true if the parameter of this name is frozen and gets no gradient.
using Frozen = std::function<bool(std::string_view)>;

/// The scopes of heads that give one number for each token: SCOPE.weight [1, hidden_size], without a bias, on
/// the last norm's output. The numbers are f32 in every policy (f64 under 64-true). Initially normal with the
/// standard deviation 1 / (hidden_size + 1), as in OpenRLHF.
inline constexpr std::string_view kScoreHead = "score";       // of reward models, as in Hugging Face's
inline constexpr std::string_view kValueHead = "value_head";  // of critics; not part of a written model

/// The entropies of the distributions after the tokens, among the results of a training graph.
enum class Entropy : std::uint8_t {
  none,
  computed,  // output "entropy" [tokens]
  trained,   // and its seed "dentropy" [tokens]
};

/// Results of a training graph in addition to log-probabilities.
struct Extras {
  Entropy entropy = Entropy::none;
  bool value = false;  // output "value" [tokens] of a value head, and with `train` its seed "dvalue" [tokens]
  double l2wrap = 0;   // of graph::Builder::log_prob()
  double z_loss = 0;   // the same
  /// Not 0, of a model with experts: output "balance" [tokens], whose mean over a row's tokens is the loss of
  /// balance of the row (kernels/balance.h), and with `train` its seed "dbalance" [tokens]. The gradient is
  /// multiplied by this weight, the output is not.
  double balance = 0;
  /// The slots of states that rows continue, as Segment::slot names them: inputs are "SCOPE.state", and the
  /// states after the rows "SCOPE.next_state". 0: every row begins its sequences.
  std::int64_t carried = 0;
  DropoutRates dropout = {};
};

/// Builds inputs "ids" and "targets" [tokens] (−1: no log-probability) and outputs "log_prob" and "lse"
/// [tokens]. With `train`, the backward pass of every parameter that is not `frozen` follows, with the seed
/// "dlog_prob" [tokens] as an input. `tokens` is the capacity of a micro-batch, `positions` the longest
/// sequence. Throws ConfigError if the model has fewer positions, or is a reward model.
graph::Graph build_log_prob(const ModelConfig& config, std::int64_t tokens, std::int64_t positions,
                            bool train, const Frozen& frozen = {}, const Extras& extras = {});

/// Builds the graph of a reward model: input "ids" [tokens], output "value" [tokens, 1], the score after each
/// token, and with `train` the seed "dvalue" of that shape and the backward pass. Throws ConfigError if the
/// model has fewer positions.
graph::Graph build_scores(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train,
                          const Frozen& frozen = {}, const DropoutRates& dropout = {});

/// Builds the forward pass of one token with the model's own head, for its parameters and layers.
graph::Graph build_forward(const ModelConfig& config);

/// Builds the same graph as build_log_prob, with the additional output "logits" [tokens, vocabulary].
graph::Graph build_logits(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train);

/// Builds a graph for the logits of some tokens: inputs "ids" [tokens] and "rows" [rows], the tokens for
/// which "logits" [rows, vocabulary] are computed. Throws ConfigError as build_log_prob does.
graph::Graph build_selected_logits(const ModelConfig& config, std::int64_t tokens, std::int64_t positions,
                                   std::int64_t rows);

/// Builds a graph that reads from and appends to a key-value cache: inputs "ids" [tokens] and "rows" [slots],
/// the tokens for which "logits" [slots, vocabulary] are computed. `slots` sequences have up to `capacity`
/// positions.
graph::Graph build_decode(const ModelConfig& config, std::int64_t tokens, std::int64_t slots,
                          std::int64_t capacity);

}  // namespace mantissa::model
