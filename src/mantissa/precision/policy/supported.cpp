#include "mantissa/precision/policy/supported.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/precision/policy/presets.h"

namespace mantissa::precision {
namespace {

struct Allowed {
  std::string_view field;
  std::vector<std::string> values;
  std::string_view why;  // why other values are not available
};

const std::vector<Allowed>& allowed_in_f32() {
  static const std::vector<Allowed> table = {
      {"optimizer",
       {"f32", "tf32", "bf16", "dynamic8-256", "e4m3-256", "f16-256"},
       "in f16 and 8 bits without scales (1-beta2)*g^2 underflows for g < 8e-4, and first moment / eps explodes"},
      {"checkpoint",
       {"f32", "f64", "bf16", "f16", "e5m2", "e4m3"},
       "safetensors has no such format and would store f32"},
  };
  return table;
}

bool is_format(const Field& field) {
  return std::holds_alternative<std::optional<Scalar> Fields::*>(field.member) ||
         std::holds_alternative<std::optional<Accumulator> Fields::*>(field.member) ||
         std::holds_alternative<std::optional<Compute> Fields::*>(field.member) ||
         std::holds_alternative<std::optional<StateFormat> Fields::*>(field.member);
}

/// Rejects f64 unless the whole run uses it.
void check_f64(const Fields& fields, bool f64) {
  for (const Field& field : field_table()) {
    const std::string value = field_text(fields, field);
    if (!is_format(field) || value.empty() || field.name == "checkpoint" || (value == "f64") == f64) continue;
    throw ConfigError(
        "{}={} is not available: f64 is supported only under 64-true, where every format is f64; "
        "use {}={} ({})",
        field.name, value, field.name, f64 ? "f64" : "f32", trainable());
  }
}

/// Rejects values that make a scale or its history meaningless.
void check_scaling(const Fields& fields) {
  constexpr std::int64_t kMostHistory = 65536, kMostMargin = 64;
  const std::int64_t history = fields.amax_history.value_or(1), margin = fields.scale_margin.value_or(0);
  if (history < 1 || history > kMostHistory) {
    throw ConfigError(
        "amax_history={}: must be 1 to {} steps; use scaling=current for scales without a history, or "
        "scaling=none for no scales",
        history, kMostHistory);
  }
  if (margin > kMostMargin)
    throw ConfigError("scale_margin={}: must be 0 to {} binades", margin, kMostMargin);
}

/// Rejects a rounding of gradients with a constant error.
void check_gradient_rounding(const Fields& fields) {
  if (fields.gradient_rounding != Rounding::toward_zero) return;
  throw ConfigError(
      "gradient_rounding=toward-zero is not available: it makes every gradient smaller; use nearest or "
      "stochastic");
}

/// Rejects formats of weights where nothing is rounded to them.
void check_weights(const Fields& fields, bool f64) {
  if (!f64 || fields.weights.value_or(WeightFormat::none) == WeightFormat::none) return;
  throw ConfigError(
      "weights={} is not available under 64-true: its codes are computed in f32. Fix: weights=none, or "
      "32-true ({})",
      name(*fields.weights), trainable());
}

/// True if storing an f32 result in `s` rounds it. This includes tf32, which uses as many bytes as f32.
bool is_below_f32(Scalar s) {
  return !holds(s, Scalar::f32);
}

/// Rejects a rounding of sums over shards that has nothing to round. Rules set neither field.
void check_reduce(const Fields& fields) {
  if (fields.reduce_rounding.value_or(Rounding::nearest) == Rounding::nearest || is_below_f32(*fields.reduce))
    return;
  throw ConfigError(
      "reduce_rounding={} is not available: reduce={} rounds no sum over shards; use reduce_rounding=nearest, or "
      "reduce=bf16 ({})",
      field_text(fields, *find_field("reduce_rounding")), name(*fields.reduce), trainable());
}

void check_fields(const Fields& fields, bool f64) {
  check_f64(fields, f64);
  check_scaling(fields);
  check_gradient_rounding(fields);
  check_weights(fields, f64);
  for (const Allowed& row : allowed_in_f32()) {
    const std::string value = field_text(fields, *find_field(row.field));
    if (value.empty() || (f64 && value == "f64") || std::ranges::find(row.values, value) != row.values.end())
      continue;
    throw ConfigError("{}={} is not available: {}; use {}={} ({})", row.field, value, row.why, row.field,
                      fmt::format("{}", fmt::join(row.values, "|")), trainable());
  }
}

/// Rejects a format of weights for some uses of a parameter: all uses read the same values.
void check_weights_rule(const Rule& rule) {
  if (!rule.fields.weights) return;
  const bool some = !rule.op.empty() || rule.pass || !rule.operand.empty();
  if (!some && !rule.first_step && !rule.last_step) return;
  throw ConfigError(
      "weights={} applies to all uses of a parameter and to all steps: expected only a scope. Fix: remove {}, or "
      "set weights in a rule of its own",
      name(*rule.fields.weights), some ? "op, pass and operand" : "steps");
}

void check_rule_supported(const Rule& rule, bool f64) {
  check_weights_rule(rule);
  if ((rule.first_step || rule.last_step) &&
      (rule.fields.params || rule.fields.optimizer || rule.fields.kahan || rule.fields.grads)) {
    throw ConfigError(
        "steps is not available for params, grads, optimizer and kahan: state kept between steps has "
        "one format; leave them out, or resume with another policy");
  }
  Fields others = rule.fields;
  others.optimizer = {};
  others.rounding = {};
  others.kahan = {};
  others.compute = {};
  others.accumulate_order = {};
  others.accumulate = {};
  if (rule.pass == Pass::update && others != Fields()) {
    throw ConfigError(
        "pass=update supports only optimizer, rounding, kahan, compute, accumulate and accumulate_order: other "
        "fields do not affect the update; remove them");
  }
  if (rule.pass == Pass::update && rule.fields.accumulate && rule.fields.accumulate->rounds()) {
    throw ConfigError(
        "accumulate={} is not available with pass=update, whose products are summed in f32 or as a card sums "
        "them; use accumulate=f32, or a card such as accumulate=h100",
        field_text(rule.fields, *find_field("accumulate")));
  }
  check_fields(rule.fields, f64);
}

Scalar scalar_of(Scalar s) {
  return s;
}
/// States in blocks have a rounding of their own.
Scalar scalar_of(const StateFormat& f) {
  return f.type;
}

/// True if the policy or one of its rules gives a number format below f32 to `member`.
template <class Format>
bool narrows(const Policy& policy, std::optional<Format> Fields::*member) {
  const auto narrow = [member](const Fields& f) {
    return f.*member && is_below_f32(scalar_of(*(f.*member)));
  };
  return narrow(policy.fields()) ||
         std::ranges::any_of(policy.rules(), [&](const Rule& r) { return narrow(r.fields); });
}

/// Rejects a rounding without anything to round, and a compensation without any loss. A rule for other passes
/// may still use its rounding for activations (`only_update` is false), and the policy's own also applies to
/// states of recurrences (`with_states`).
void check_update_fields(const Policy& policy, const Fields& fields, bool only_update, bool with_states) {
  const bool weights = narrows(policy, &Fields::params), moments = narrows(policy, &Fields::optimizer);
  if (fields.kahan.value_or(false) && !weights) {
    throw ConfigError(
        "kahan=true is not available: {} masters need no compensation; use kahan=false, or params=bf16 ({})",
        name(*policy.fields().params), trainable());
  }
  const bool states = with_states && narrows(policy, &Fields::state);
  if (only_update && fields.rounding.value_or(Rounding::nearest) != Rounding::nearest && !weights &&
      !moments && !states) {
    throw ConfigError(
        "rounding={} is not available: it applies only to weights, moments and states below f32, and all are "
        "{}; use rounding=nearest, or params=bf16, optimizer=bf16 or, for a recurrence, state=bf16 ({})",
        field_text(fields, *find_field("rounding")), name(*policy.fields().params), trainable());
  }
}

}  // namespace

void check_update(const Resolved& parameter) {
  const bool compensated = parameter.kahan && is_below_f32(parameter.params);
  const bool fine =
      parameter.optimizer.type == Scalar::tf32;  // sufficient for betas up to 0.9995 with rounding to nearest
  if (!is_below_f32(parameter.optimizer.type) || parameter.rounding == Rounding::stochastic ||
      (parameter.rounding == Rounding::nearest && (compensated || fine))) {
    return;
  }
  if (fine) {
    throw ConfigError(
        "optimizer=tf32 is not available with rounding=toward-zero: for beta near 1 a moment changes by less "
        "than a unit in its last place, and truncation discards every increase; use rounding=nearest or "
        "stochastic, or optimizer=f32");
  }
  throw ConfigError(
      "optimizer={} is not available with this rounding: for beta near 1 a moment changes by less than half "
      "a unit in its last place, and rounding discards the change; use rounding=stochastic, kahan=true with "
      "params=bf16 and rounding=nearest, or optimizer=f32",
      name(parameter.optimizer));
}

void check_supported(const Policy& policy) {
  const bool f64 = policy.arithmetic() == Scalar::f64;
  check_fields(policy.fields(), f64);
  check_reduce(policy.fields());
  check_update_fields(policy, policy.fields(), true, true);
  for (const Rule& rule : policy.rules()) {
    try {
      check_rule_supported(rule, f64);
      check_update_fields(policy, rule.fields, rule.pass == Pass::update, false);
    } catch (const ConfigError& e) {
      throw ConfigError("rule {} ({}): {}", in_quotes(rule.str()), rule.origin, e.what());
    }
  }
  check_update(policy.resolve({"", "update", Pass::update, 0}));
}

}  // namespace mantissa::precision
