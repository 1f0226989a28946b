// The part of a model that its family builds: the nodes from ids to the last norm, and the head's weight. The
// graphs for training, traces and decoding (engine/model/graphs.h) are built from these two.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/engine/graph/builder.h"
#include "mantissa/engine/model/adapter.h"

namespace mantissa::model {

using graph::ValueId;

/// The sequences of which a network keeps states: in each slot one of up to `capacity` positions. `slots` is
/// 0 if it keeps none. `carries`: each row of a training step continues the sequence of its slot.
struct Sequences {
  std::int64_t slots = 0;
  std::int64_t capacity = 0;
  bool carries = false;
};

/// The rates at which a training step drops values; 0: none.
struct DropoutRates {
  double attention = 0;  // probabilities
  double residual = 0;   // what a sublayer adds to the residual stream
  double adapter = 0;    // inputs of the low-rank products of an adapter
  friend bool operator==(const DropoutRates&, const DropoutRates&) = default;
};

/// The means of building a network: the ops, the number of positions, and the states for decoding.
class NetworkBuilder {
 public:
  /// `positions` is the longest sequence, including cached positions.
  /// `adapter` decorates linear layers; null: none.
  NetworkBuilder(graph::Graph& graph, std::int64_t tokens, std::int64_t positions, Sequences kept,
                 const Adapter* adapter)
      : ops(graph, tokens), positions_(positions), kept_(kept), adapter_(adapter) {}

  graph::Builder ops;

  std::int64_t positions() const { return positions_; }

  void set_dropout(const DropoutRates& rates) { dropout_ = rates; }
  const DropoutRates& dropout() const { return dropout_; }
  /// Adds the result of a sublayer, with its dropout, to the residual stream.
  ValueId add(const std::string& scope, ValueId residual, ValueId branch);

  /// A layer's router: its logits [tokens, experts], and the experts of each token [tokens, chosen].
  struct Router {
    ValueId logits = graph::kNone, choice = graph::kNone;
  };
  std::vector<Router> routers;  // in the order of layers

  /// Returns the parameter called `name`, declared at its first use.
  ValueId parameter(const std::string& name, const Shape& shape, const graph::Init& init);

  /// A linear layer: x·Wᵀ + `bias` [out], which may be kNone, and the layer's adapter, if it has one.
  ValueId linear(const std::string& scope, ValueId x, ValueId weight, ValueId bias = graph::kNone,
                 graph::Builder::WeightLayout layout = graph::Builder::WeightLayout::out_in);

  /// The same layer without rounding of its result, unless an adapter adds to it.
  ValueId term(const std::string& scope, ValueId x, ValueId weight, ValueId bias);

  /// The products of the tokens with the `weight` [experts, out, in] of their experts, `choice` [tokens,
  /// chosen], and the layer's adapter, if it has one.
  ValueId experts(const std::string& scope, ValueId x, ValueId weight, ValueId choice);

  /// Returns keys or values in the policy's `kv` format: those of the tokens or, with a cache, all of the
  /// cache with the new positions appended. `scope` is the projection that computes them.
  ValueId cached(const std::string& scope, ValueId x);

  /// Returns a state of `width` elements for the prefix of each sequence, "SCOPE.state"; none if the network
  /// keeps none. A state of tokens has the format of a layer's results (Role::compute).
  graph::Builder::PrefixState prefix_state(const std::string& scope, std::int64_t width,
                                           graph::Role role = graph::Role::state);
  /// Returns the state with which the recurrence `scope` begins every sequence, a parameter of the adapter,
  /// or kNone for zeros.
  ValueId initial_state(const std::string& scope, const Shape& shape);

  /// Sets the tokens [count] whose logits are needed: the feed-forward of the last layer and what follows
  /// computes only them. Not called: all tokens.
  void choose(ValueId rows) { chosen_ = rows; }
  /// Returns the rows of the residual stream `x` that the last layer needs after its attention.
  ValueId chosen(const std::string& scope, ValueId x) {
    return chosen_ == graph::kNone ? x : ops.select(scope, x, chosen_);
  }

 private:
  std::int64_t positions_;
  Sequences kept_;
  const Adapter* adapter_;
  DropoutRates dropout_;
  ValueId chosen_ = graph::kNone;
};

/// The last product: logits = soft_cap((scale · x) · weightᵀ).
struct Head {
  std::string scope;  // "lm_head"
  ValueId weight = graph::kNone;
  double soft_cap = 0;  // 0: none; otherwise logits are cap · tanh(logits / cap)
  double scale = 1;     // of x, which is rounded as a layer's result
};

/// A model with the sizes of its config.json. Immutable.
class Network {
 public:
  virtual ~Network() = default;

  /// Returns the last norm's output for `ids` [tokens]: [tokens, hidden_size], or that of the chosen rows,
  /// which the last layer selects by NetworkBuilder::chosen.
  virtual ValueId trunk(NetworkBuilder& b, ValueId ids) const = 0;
  virtual Head head(NetworkBuilder& b) const = 0;

  /// Writes the fields of this network into a config.json, in a form that transformers 4 and 5 both read.
  virtual void write(nlohmann::json& config) const = 0;

  /// Returns true if a token's values depend on the length of its sequence (dynamic RoPE beyond the trained
  /// context).
  virtual bool depends_on_length(std::int64_t /*length*/) const { return false; }
};

}  // namespace mantissa::model
