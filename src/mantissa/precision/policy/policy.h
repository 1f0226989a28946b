// The precision policy: one immutable value that parses from and prints to one line. For every use in a graph
// it returns the formats and the rule that decides them (docs/numerics.md, "Policy").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/core/numeric/state_format.h"
#include "mantissa/core/numeric/weight_format.h"
#include "mantissa/precision/policy/compute.h"

namespace mantissa::precision {

enum class Pass : std::uint8_t { forward, backward, update };
std::string_view name(Pass pass);

/// How the loss is scaled: not at all, dynamically from an initial scale, or by a constant.
struct LossScale {
  enum class Kind : std::uint8_t { none, dynamic, constant } kind = Kind::none;
  double value = 1;         // initial or constant scale
  std::string str() const;  // "none", "dynamic:2^16", "128"
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

/// The source of a tensor's scale: the largest magnitudes of earlier steps, its own values, or no scale.
/// `automatic` is current for nvfp4 and delayed for 8 bits.
enum class Scaling : std::uint8_t { automatic, delayed, current, none };

/// The elements of a weight that share a scale: a block along the sum, all elements along the sum, or a
/// square of 16, 32 or 128 rows and columns, so that both directions of a product have equal values.
enum class WeightBlock : std::uint8_t { automatic, square_16, square_32, square_128, whole };

/// The elements of an activation or its gradient that share a scale: a block along the sum, 128 elements, or
/// all elements along the sum: the features of a token, or the tokens of a sequence.
enum class ActivationBlock : std::uint8_t { automatic, row_128, whole };

/// Where the result of RMSNorm rounds: after the gain multiplies it, as in Transformer Engine, or also
/// before, to the format of the norm's input, as in the modules of transformers.
enum class NormCast : std::uint8_t { after_gain, before_gain };

/// The random Hadamard transforms of the factors of weight gradients: none, or of 16 tokens each.
enum class Hadamard : std::uint8_t { none, tokens_16 };

/// The order in which products are summed (core/numeric/factor.h): by the formats of their factors, or as
/// set.
enum class AccumulateOrder : std::uint8_t { by_factors, chain, tile };

/// The fields that a policy line, a preset or a rule can set. A rule leaves unset fields unchanged.
struct Fields {
  std::optional<Compute> compute;
  std::optional<Scalar> params, residual, output, grads, reduce, kv, state, checkpoint;
  std::optional<StateFormat> optimizer;
  std::optional<Accumulator> accumulate;   // a format, or a card with its options
  std::optional<bool> output_via_compute;  // output = "compute>f32"
  std::optional<std::int64_t> accumulate_block;
  std::optional<AccumulateOrder> accumulate_order;
  std::optional<Rounding> rounding, reduce_rounding;
  std::optional<bool> kahan, saturate, flush_subnormals;
  std::optional<Scaling> scaling;
  std::optional<std::int64_t> scale_margin, amax_history;
  std::optional<ScaleRounding> scale_rounding;
  std::optional<Rounding> gradient_rounding;
  std::optional<WeightBlock> weight_block;
  std::optional<ActivationBlock> activation_block;
  std::optional<Hadamard> hadamard;
  std::optional<WeightFormat> weights;
  std::optional<NormCast> norm_cast;
  std::optional<LossScale> loss_scale;
  friend bool operator==(const Fields&, const Fields&) = default;
};

/// A rule. Where its patterns match, its fields override the preset and earlier rules.
struct Rule {
  std::string match = "*";  // scope glob: * ? [0-3] [!x] {a,b}; also matches everything below a matching
                            // scope, and parameters (glob.h, tensor_match)
  std::string op;           // of ops or of one of them: "matmul", "matmul.dw"; empty: any
  std::optional<Pass> pass;
  std::string operand;                                // empty: any
  std::optional<std::int64_t> first_step, last_step;  // steps = "0:500": [first, last)
  Fields fields;
  std::string origin;       // "--rule 1", "run.toml:31": printed by explain under "decided by"
  std::string str() const;  // "SCOPE: field=value …", or the TOML inline form if that does not suffice
  bool names_update() const { return op == "update" || pass == Pass::update; }  // only the optimizer's steps
  /// True if the rule sets a field that parameters of one module can have each for itself, besides those of
  /// the update.
  bool speaks_of_tensors() const {
    return fields.params || fields.grads || fields.residual || fields.weights;
  }
  friend bool operator==(const Rule&, const Rule&);
};

/// A use of formats in a graph: the argument of a policy lookup.
struct Use {
  std::string_view scope;
  std::string_view op;
  Pass pass = Pass::forward;
  std::int64_t step = 0;
  std::string_view operand = {};  // of a product: "input", "weight", "gradient"; empty: the op itself
  bool interior = false;          // `op` is an interior step of an op; only rules with that op match
  std::string_view tensor = {};   // the parameter that the use is about, "model.norm.weight"; empty: none
  std::string_view id = {};       // of the op: "matmul.dw", one of the products whose op is "matmul"
};

/// Returns the use that decides the format of the masters of parameter `name`, and that for which it is
/// trained.
Use master_use(std::string_view name);

/// The resolved fields of a use.
struct Resolved {
  Compute compute = Scalar::f32;
  Accumulator accumulator;  // its order depends on the factors, unless set below
  AccumulateOrder accumulate_order = AccumulateOrder::by_factors;
  Scalar params = Scalar::f32, residual = Scalar::f32, output = Scalar::f32, grads = Scalar::f32,
         kv = Scalar::f32, state = Scalar::f32;
  StateFormat optimizer;
  Rounding rounding = Rounding::nearest;
  bool kahan = false, saturate = false, flush_subnormals = false, output_via_compute = false;
  Scaling scaling = Scaling::delayed;  // never automatic: that of the operand's format
  std::int64_t scale_margin = 0, amax_history = 1024;
  ScaleRounding scale_rounding = ScaleRounding::floor;
  Rounding gradient_rounding = Rounding::nearest;
  WeightBlock weight_block = WeightBlock::automatic;
  ActivationBlock activation_block = ActivationBlock::automatic;
  Hadamard hadamard = Hadamard::none;
  WeightFormat weights = WeightFormat::none;
  NormCast norm_cast = NormCast::after_gain;
};

class Policy {
 public:
  /// "32-true".
  Policy();
  /// Parses the name or alias of a preset ("bf16" means bf16-mixed), or a one-line policy "params=f32
  /// compute=bf16 …". A line may begin with a preset's name; its fields then override the preset's. Also
  /// reads the spellings of other systems (foreign.h) and adds a note to `notes` for everything in them
  /// without a field here. Throws ConfigError with the nearest known spelling.
  static Policy parse(std::string_view text, std::vector<std::string>* notes = nullptr);
  /// Returns this policy with one more rule (short form or TOML inline table). Later rules win.
  Policy with_rule(std::string_view text, std::string origin) const;
  Policy with_rule(Rule rule) const;
  Policy with_fields(const Fields& fields) const;
  /// Returns this policy with one more default: a rule that applies before all of rules(). Defaults come from
  /// settings outside the policy, such as an adapter's, so line() and rules() omit them.
  Policy with_default(Rule rule) const;

  /// Returns the name of the preset with these fields, such as "bf16-mixed", or "custom".
  const std::string& preset() const { return preset_; }
  /// Returns preset(), or for other fields the nearest preset with those that differ: "16-mixed
  /// loss_scale=none". Leaves rules out.
  std::string short_line() const;
  /// Returns short_line() for people: "bf16-mixed with rules" if there are rules.
  std::string title() const;
  /// Returns the fields in canonical order, without optional fields at their usual values, then the rules.
  /// Parses back to an equal value.
  std::string line() const;
  /// Returns the [precision] table of a resolved config.
  std::string toml() const;

  const Fields& fields() const { return fields_; }  // all set
  const std::vector<Rule>& rules() const { return rules_; }
  LossScale loss_scale() const { return *fields_.loss_scale; }
  /// The format of arithmetic in ops that are not lowered: f64 under 64-true, else f32.
  Scalar arithmetic() const;

  Resolved resolve(const Use& use) const;
  /// Returns the format that rules give to an interior step of an op, or null if no rule names it. Throws
  /// ConfigError if such a rule sets anything but a plain format.
  std::optional<Scalar> interior(const Use& use) const;
  /// Returns the format that rules give to the update's arithmetic, by `compute` with op = "update" or pass =
  /// "update", or null. Throws like interior().
  std::optional<Scalar> update_arithmetic(const Use& use) const;
  /// Returns the format that rules with pass = "update" give to the operands of an update's products, or
  /// null. Throws ConfigError for a scaled format.
  std::optional<Compute> update_compute(const Use& use) const;
  /// Returns the order that rules with pass = "update" give to the sums of an update's products.
  AccumulateOrder update_order(const Use& use) const;
  /// Returns the card that sums an update's products of factors in `factor`: that of rules with pass =
  /// "update", else the policy's own if it multiplies such factors. f32 without a card.
  Accumulator update_accumulator(const Use& use, Scalar factor) const;
  /// Returns true if parameter `name` keeps the rounding error of its weights for the next update: `kahan` is
  /// set and the weights have fewer bits than the arithmetic.
  bool compensates(std::string_view name) const;
  /// Returns the rounding that rules give to activations and their gradients; nearest without such a rule.
  /// The policy's own `rounding` applies to weights, moments and states of recurrences.
  Rounding activation_rounding(const Use& use) const;
  /// Returns the origin of the fields `names` for `use`: the last rule that sets any of them, else the preset
  /// or line.
  std::string decided_by(const Use& use, std::span<const std::string_view> names) const;
  /// Returns this policy as it applies to step `step` of a run (from 0): without the rules of other steps.
  Policy at_step(std::int64_t step) const;
  /// Returns this policy with only the rules of these indices.
  Policy with_only(std::span<const std::size_t> rules) const;
  /// Returns the indices of the rules that at_step() keeps.
  std::vector<std::size_t> rules_at(std::int64_t step) const;
  /// Returns the steps at which at_step() changes, ascending: where rules begin or end.
  std::vector<std::int64_t> changes() const;
  /// Returns the indices of the rules whose patterns match `use`, ascending.
  std::vector<std::size_t> matching_rules(const Use& use) const;

  friend bool operator==(const Policy&, const Policy&);

 private:
  /// Returns the rules that match `use` in the order in which they apply: defaults, then rules().
  std::vector<const Rule*> applying(const Use& use) const;

  std::string preset_;
  Fields fields_;
  std::vector<Rule> defaults_;
  std::vector<Rule> rules_;
};

/// True if `pattern` matches all of `scope`. `*` crosses dots, `?` is one character, [0-3] a set, {a,b}
/// alternatives, {0,8-11} numbers.
bool glob_match(std::string_view pattern, std::string_view scope);

}  // namespace mantissa::precision
