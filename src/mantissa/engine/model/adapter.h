// Low-rank adapters of linear layers: LoRA (Hu et al., arXiv 2106.09685), with the scale of rsLoRA
// (Kalajdzievski, arXiv 2312.03732) and the magnitudes of DoRA (Liu et al., arXiv 2402.09353). An adapter
// decorates the linear layers of a network; the families do not know it.
//
//   LoRA:  y = x·Wᵀ + b + s·(x·Aᵀ)·Bᵀ
//   DoRA:  y = m / ‖W + s·B·A‖ · (x·Wᵀ + s·(x·Aᵀ)·Bᵀ) + b, with the norms of rows, constants of the gradient
//
// An adapter of states (RWKV-PEFT) trains instead the state with which each recurrence begins every sequence.
//
// W is [out, in], A [rank, in], B [out, rank], m [out], of experts one of each; s is alpha / rank, or alpha /
// √rank with rsLoRA.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::model {

struct ModelConfig;

/// The adapter of one linear layer.
struct AdapterLayer {
  std::int64_t rank = 0;
  double alpha = 0;
  friend bool operator==(const AdapterLayer&, const AdapterLayer&) = default;
};

struct Adapter {
  std::map<std::string, AdapterLayer, std::less<>> layers;  // by the scope of the linear layer
  bool rslora = false;
  bool dora = false;
  bool states = false;  // true: it trains the initial states of recurrences, and `layers` is empty
  /// Scopes of heads that are trained as a whole, with the adapter: kScoreHead, kValueHead
  /// (engine/model/graphs.h).
  std::vector<std::string> heads = {};

  /// Returns the adapter of the layer `scope`, or null.
  const AdapterLayer* find(std::string_view scope) const;
  /// Returns s.
  double scale(const AdapterLayer& layer) const;
  /// Returns true if `parameter` is a parameter of this adapter, such as "SCOPE.lora_A.weight" or
  /// "SCOPE.initial_state", or of its heads.
  bool owns(std::string_view parameter) const;
};

/// The names of an adapter's parameters after the scope of their layer: "SCOPE" + kLoraA + ".weight".
inline constexpr std::string_view kLoraA = ".lora_A", kLoraB = ".lora_B",
                                  kMagnitude = ".lora_magnitude_vector";

/// The name of the initial state of a recurrence [heads, key_dim, value_dim] after its scope.
inline constexpr std::string_view kInitialState = ".initial_state";

/// A recurrence of a model, which has a state of one size for any length of a sequence.
struct RecurrentLayer {
  std::string scope;
  std::vector<std::int64_t> state = {};  // [heads, key_dim, value_dim]
};
/// Returns the recurrences of `config` in the order of their computation.
std::vector<RecurrentLayer> recurrent_layers(const ModelConfig& config);

/// A linear layer of a model.
struct LinearLayer {
  std::string scope;
  std::int64_t in = 0, out = 0;
  bool in_out = false;       // the weight is [in, out]
  std::int64_t experts = 0;  // not 0: of so many experts, with a weight [experts, out, in]
};
/// Returns the linear layers of `config` without the head, in the order of their computation. The projections
/// of experts are not among them.
std::vector<LinearLayer> linear_layers(const ModelConfig& config);
/// Returns the projections of experts ("model.layers.0.mlp.experts.up_proj"), each of all experts of a layer.
/// An adapter of one has lora_A [experts, rank, in] and lora_B [experts, out, rank], and no magnitudes.
std::vector<LinearLayer> expert_layers(const ModelConfig& config);

}  // namespace mantissa::model
