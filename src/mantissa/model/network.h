// What a family of models builds: the nodes from ids to the last norm, and the head's weight. The graphs for
// training, traces and decoding (model/graphs.h) are made of these two for every family.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/graph/builder.h"

namespace mantissa::model {

using graph::ValueId;

/// The room for keys and values of earlier positions; `slots` is 0 without a cache.
struct Cache {
  std::int64_t slots = 0;
  std::int64_t capacity = 0;
};

/// What a network is built with: the ops, the number of positions, and the cache in decoding.
class NetworkBuilder {
 public:
  /// `positions`: the longest sequence, with what its cache holds.
  NetworkBuilder(graph::Graph& graph, std::int64_t tokens, std::int64_t positions, Cache cache)
      : ops(graph, tokens), positions_(positions), cache_(cache) {}

  graph::Builder ops;

  std::int64_t positions() const { return positions_; }

  /// The parameter called `name`, declared at its first use.
  ValueId parameter(const std::string& name, const Shape& shape, const graph::Init& init);

  /// Keys or values in the policy's `kv` format: those of the tokens, and where there is a cache all of it
  /// with the new positions appended. `scope` is the projection that makes them.
  ValueId cached(const std::string& scope, ValueId x);

 private:
  std::int64_t positions_;
  Cache cache_;
};

/// The last product: logits = soft_cap(x · weightᵀ).
struct Head {
  std::string scope;  // "lm_head"
  ValueId weight = graph::kNone;
  double soft_cap = 0;  // 0: none; else logits are cap · tanh(logits / cap)
};

/// A model with its sizes, as config.json describes it. Immutable.
class Network {
 public:
  virtual ~Network() = default;

  /// The last norm's output [tokens, hidden_size] for `ids` [tokens].
  virtual ValueId trunk(NetworkBuilder& b, ValueId ids) const = 0;
  virtual Head head(NetworkBuilder& b) const = 0;

  /// Writes the fields that this network was read from into a config.json, in the form that transformers 4
  /// and 5 both read.
  virtual void write(nlohmann::json& config) const = 0;

  /// The scope of the last norm, whose rows decoding selects.
  virtual std::string last_scope() const = 0;

  /// True where a token's values depend on the length of its sequence (dynamic RoPE beyond the trained
  /// context).
  virtual bool depends_on_length(std::int64_t /*length*/) const { return false; }
};

}  // namespace mantissa::model
