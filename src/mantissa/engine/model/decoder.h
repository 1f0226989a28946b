// The transformer decoder with rotary positions that all families but GPT-2 and RWKV-7 share: one
// description, filled by the families from their configs, and one network built from it. Weights are named as
// in Hugging Face (LlamaForCausalLM and similar classes).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/model/experts.h"
#include "mantissa/engine/model/fields.h"
#include "mantissa/engine/model/network.h"
#include "mantissa/kernels/rope_scaling.h"

namespace mantissa::model {

/// A table of rotary angles.
struct Rope {
  std::string name = "rope";  // prefix of its constants: "rope.cos", "rope.sin"
  double theta = 10000;
  kernels::RopeScaling scaling = {};
};

struct DecoderLayer {
  std::int64_t window = 0;  // keys visible to a query, including its own; 0: the whole prefix
  std::size_t rope = 0;     // index in DecoderSpec::ropes
  bool rotates = true;      // false: q and k are used as they are
};

/// The gated MLP's activation.
enum class Gate : std::uint8_t { silu, gelu_tanh };

/// The norms of a layer and before the head: RMSNorm, or LayerNorm with a bias.
enum class Norm : std::uint8_t { rms, layer };

/// q_norm and k_norm: RMSNorm over each head, or over the whole width of q and of k. q_layernorm and
/// k_layernorm: LayerNorm over each head, with a gain for each.
enum class QkNorms : std::uint8_t { none, heads, width, own_heads };

/// The names of a layer's norms; "": there is none.
struct NormNames {
  const char* before_attention = "input_layernorm";
  const char* after_attention = "";  // of the branch, before it is added
  const char* before_mlp = "post_attention_layernorm";
  const char* after_mlp = "";
};

struct DecoderSpec {
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t max_positions = 2048;
  double norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tied_head = false;
  std::int64_t padding_id = -1;  // the look-up does not train this row of the embedding; -1: none

  bool merged_qkv = false;      // qkv_proj for q, k and v
  bool merged_gate_up = false;  // gate_up_proj for gate and up
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  QkNorms qk_norms = QkNorms::none;
  Norm norm = Norm::rms;
  NormNames norms = {};
  bool parallel = false;   // the MLP reads what attention reads; both are added to the same residual stream
  double gain_offset = 0;  // norms multiply by gain_offset + gain
  Gate gate = Gate::silu;
  double swiglu_limit = 0;  // of gate, and of up on both sides; 0: none
  double embedding_scale = 1;
  double branch_scale = 1;     // of the results of attention and MLP, before they are added
  double logit_divisor = 1;    // of the logits, by which the input of the head is divided
  double attention_scale = 0;  // 0: 1/√head_dim
  double score_cap = 0, logit_cap = 0;
  std::int64_t rotated = 0;         // values of a head that are rotated: rotary_factor · head_dim
  bool rotates_neighbours = false;  // in pairs (2i, 2i + 1) in place of (i, i + rotated / 2)
  /// partial_rotary_factor, which files state; null: 1, the family's default.
  std::optional<double> rotary_factor = std::nullopt;

  std::optional<Experts> experts = std::nullopt;  // in place of the MLP of some layers

  std::vector<Rope> ropes;
  std::vector<DecoderLayer> layers;
};

/// The defaults of transformers for fields missing from config.json.
struct DecoderDefaults {
  std::int64_t max_positions = 2048;
  std::int64_t kv_heads = 0;  // 0: num_attention_heads, which is also the meaning of null
  std::int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  bool tied_head = false;
  std::optional<std::int64_t> padding_id = std::nullopt;  // none if the vocabulary lacks it
  /// Of partial_rotary_factor; null: the family's heads are rotated completely, and others are an error.
  std::optional<double> rotary_factor = std::nullopt;
};

/// Reads the common sizes of these families (hidden_size, intermediate_size, num_attention_heads, …) into the
/// spec and the common part of `config`, and checks their consistency. The family itself reads rotary tables,
/// windows and its own fields.
DecoderSpec read_decoder(const FieldReader& fields, ModelConfig& config, const DecoderDefaults& defaults);

/// Throws ConfigError if the field `key` names an activation other than `name` and `alias`.
void require_activation(const FieldReader& fields, std::string_view key, std::string_view name,
                        std::string_view alias);

/// Reads hidden_act, which must be SiLU, and swiglu_limit.
void read_swiglu(const FieldReader& fields, ModelConfig& config, DecoderSpec& spec);

/// Returns the fields that read_decoder() and read_swiglu() read, for the family's table, followed by `more`.
std::vector<Field> swiglu_fields(std::vector<Field> more);

/// Returns the fields that read_decoder() reads, for the family's table, followed by `more`.
std::vector<Field> decoder_fields(std::vector<Field> more);

/// Returns for each layer of "layer_types" ("full_attention", "sliding_attention") whether it has a window.
/// Without the field, calls `otherwise` with the layer's index.
std::vector<bool> read_layer_types(const FieldReader& fields, std::int64_t layers,
                                   const std::function<bool(std::int64_t layer)>& otherwise);

/// Sets the windows by use_sliding_window, sliding_window (its default is `window`; null: none) and
/// layer_types. Without layer_types, the layers for which otherwise(layer) is true have the window.
void read_switched_windows(const FieldReader& fields, DecoderSpec& spec, std::optional<std::int64_t> window,
                           const std::function<bool(std::int64_t layer)>& otherwise);

/// Sets the window of the layers for which `windowed` is true.
void set_windows(DecoderSpec& spec, std::int64_t window, const std::vector<bool>& windowed);

class DecoderNetwork : public Network {
 public:
  explicit DecoderNetwork(DecoderSpec spec) : s_(std::move(spec)) {}

  const DecoderSpec& spec() const { return s_; }

  ValueId trunk(NetworkBuilder& b, ValueId ids) const override;
  Head head(NetworkBuilder& b) const override;
  bool depends_on_length(std::int64_t length) const override;
  /// Writes sizes and rotary fields. Other fields of the family are already in `config`.
  void write(nlohmann::json& config) const override;

 protected:
  /// The branch of `layer` after its second norm. A family with another one, such as experts, overrides it.
  /// `scope` is the layer's "….mlp".
  virtual ValueId feed_forward(NetworkBuilder& b, const std::string& scope, std::size_t layer,
                               ValueId x) const;

  // The parts of a layer. Parameters are named by their scope.
  ValueId norm(NetworkBuilder& b, const std::string& scope, ValueId x, std::int64_t channels) const;
  ValueId linear(NetworkBuilder& b, const std::string& scope, ValueId x, std::int64_t out, bool bias,
                 double init_scale = 1) const;
  /// LayerNorm of each head of `x`; the first is head `first` of the parameters. `group`: the scope of `x`.
  ValueId own_head_norms(NetworkBuilder& b, const std::string& scope, const std::string& group, ValueId x,
                         std::int64_t first) const;
  ValueId mlp(NetworkBuilder& b, const std::string& scope, ValueId x) const;
  ValueId sparse_mlp(NetworkBuilder& b, const std::string& scope, ValueId x) const;
  graph::Init normal(double scale) const;
  double residual_scale() const;

 private:
  struct Tables;  // cosines and sines of each Rope
  struct Qkv {
    ValueId q, k, v;
  };

  bool is_sparse(std::size_t layer) const { return s_.experts && s_.experts->layers[layer]; }
  ValueId block(NetworkBuilder& b, const Tables& tables, std::size_t layer, ValueId x) const;
  ValueId attention(NetworkBuilder& b, const Tables& tables, const DecoderLayer& layer,
                    const std::string& scope, ValueId x) const;
  Qkv project(NetworkBuilder& b, const std::string& scope, ValueId x) const;
  /// Returns the embedding, which a tied head shares.
  ValueId embedding(NetworkBuilder& b) const;

  DecoderSpec s_;
};

}  // namespace mantissa::model
