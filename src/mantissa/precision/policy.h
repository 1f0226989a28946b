// The precision policy: one immutable value that parses from and prints to one line, and answers for every
// use of a graph which formats it has and which rule decided (docs/numerics.md, "Policy").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/numeric/format.h"
#include "mantissa/precision/compute.h"

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

/// Where the scale of a tensor in 8 bits comes from: the largest magnitudes of earlier steps, or its own; or
/// there is none.
enum class Scaling : std::uint8_t { delayed, current, none };

/// The fields that a policy line, a preset or a rule can set. Unset in a rule: not touched.
struct Fields {
  std::optional<Compute> compute;
  std::optional<Scalar> params, accumulate, residual, output, grads, reduce, optimizer, kv, checkpoint;
  std::optional<bool> output_via_compute;  // output = "compute>f32"
  std::optional<std::int64_t> accumulate_block;
  std::optional<Rounding> rounding;
  std::optional<bool> kahan, saturate, flush_subnormals;
  std::optional<Scaling> scaling;
  std::optional<std::int64_t> scale_margin, amax_history;
  std::optional<LossScale> loss_scale;
  friend bool operator==(const Fields&, const Fields&) = default;
};

/// A rule: where its patterns match, its fields win over the preset and over earlier rules.
struct Rule {
  std::string match =
      "*";         // scope glob: * ? [0-3] [!x] {a,b}; also matched at any depth below a matching scope
  std::string op;  // empty: any
  std::optional<Pass> pass;
  std::string operand;                                // empty: any
  std::optional<std::int64_t> first_step, last_step;  // steps = "0:500": [first, last)
  Fields fields;
  std::string origin;       // "--rule 1", "run.toml:31": what explain prints under "decided by"
  std::string str() const;  // short form: "SCOPE: field=value …", or the TOML inline form where it needs more
  friend bool operator==(const Rule&, const Rule&);
};

/// The use that is asked about.
struct Use {
  std::string_view scope;
  std::string_view op;
  Pass pass = Pass::forward;
  std::int64_t step = 0;
  std::string_view operand = {};  // of a product: "input", "weight", "gradient"; empty: the op itself
  bool interior = false;          // `op` names the inside of an op, of which only rules that name it speak
};

/// The answer: the resolved fields.
struct Resolved {
  Compute compute = Scalar::f32;
  Accumulator accumulator;
  Scalar params = Scalar::f32, residual = Scalar::f32, output = Scalar::f32, grads = Scalar::f32,
         optimizer = Scalar::f32, kv = Scalar::f32;
  Rounding rounding = Rounding::nearest;
  bool kahan = false, saturate = false, flush_subnormals = false, output_via_compute = false;
  Scaling scaling = Scaling::delayed;
  std::int64_t scale_margin = 0, amax_history = 1024;
};

class Policy {
 public:
  /// "32-true".
  Policy();
  /// The preset called `name`, or by one of its aliases ("bf16" → bf16-mixed), or a one-line policy
  /// "params=f32 compute=bf16 …", optionally beginning with a preset's name whose fields it then changes.
  /// Spellings of other systems are read too (foreign.h); what they say that has no field here goes to
  /// `notes`. Throws ConfigError that names the nearest right spelling.
  static Policy parse(std::string_view text, std::vector<std::string>* notes = nullptr);
  static std::vector<std::string> preset_names();

  /// This policy with one rule more (short form or TOML inline table). Later rules win.
  Policy with_rule(std::string_view text, std::string origin) const;
  Policy with_rule(Rule rule) const;
  Policy with_fields(const Fields& fields) const;

  /// "bf16-mixed", or "custom" where the line is no preset's.
  const std::string& preset() const { return preset_; }
  /// Every field, canonical order, then the rules: parses back to an equal value.
  std::string line() const;
  /// The [precision] table of a resolved config.
  std::string toml() const;

  const Fields& fields() const { return fields_; }  // all set
  const std::vector<Rule>& rules() const { return rules_; }
  LossScale loss_scale() const { return *fields_.loss_scale; }
  /// Format of arithmetic in ops that are not lowered: f64 under 64-true, else f32.
  Scalar arithmetic() const;

  Resolved resolve(const Use& use) const;
  /// The format that rules give to the inside of an op; none where no rule names it. Throws ConfigError where
  /// one that does says anything but a plain format.
  std::optional<Scalar> interior(const Use& use) const;
  /// The format that rules give to the update's arithmetic, by `compute` with op = "update" or pass =
  /// "update"; none where no rule does. Throws as interior().
  std::optional<Scalar> update_arithmetic(const Use& use) const;
  /// The format that rules with pass = "update" give to the factors of an update's products; none where no
  /// rule does. Throws ConfigError where that is a format under scales.
  std::optional<Compute> update_compute(const Use& use) const;
  /// Whether what rounding the weights of parameter `name` loses is kept for the next update: `kahan`, where
  /// they are stored in fewer bits than the arithmetic has.
  bool compensates(std::string_view name) const;
  /// How rules say that activations, and gradients of them, are rounded; to nearest where none does: the
  /// policy's own `rounding` is of weights and moments.
  Rounding activation_rounding(const Use& use) const;
  /// Who set any of the fields called `names` for `use`: the last rule that did, else the preset or line.
  std::string decided_by(const Use& use, std::span<const std::string_view> names) const;
  /// This policy as it is in step `step` of a run, from 0 on: without the rules of other steps.
  Policy at_step(std::int64_t step) const;
  /// The rules that at_step() keeps, by their index here.
  std::vector<std::size_t> rules_at(std::int64_t step) const;
  /// The steps at which at_step() changes, ascending: where rules begin or end.
  std::vector<std::int64_t> changes() const;
  /// The index of the last rule whose patterns match `use`, for "matches nothing" warnings.
  std::vector<std::size_t> matching_rules(const Use& use) const;

  friend bool operator==(const Policy&, const Policy&);

 private:
  std::string preset_;
  Fields fields_;
  std::vector<Rule> rules_;
};

/// Whether `pattern` matches `scope`, whole: * crosses dots, ? one character, [0-3] a set, {a,b}
/// alternatives, {0,8-11} numbers.
bool glob_match(std::string_view pattern, std::string_view scope);

}  // namespace mantissa::precision
