#include "mantissa/precision/supported.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/precision/fields.h"
#include "mantissa/precision/presets.h"
#include "mantissa/precision/words.h"

namespace mantissa::precision {
namespace {

struct Allowed {
  std::string_view field;
  std::vector<std::string> values;
  std::string_view why;  // what the others would need
};

const std::vector<Allowed>& allowed_in_f32() {
  static const std::vector<Allowed> table = {
      {"params", {"f32", "bf16", "f16"}, "weights in other formats need scales"},
      {"compute", {"f32", "tf32", "bf16", "f16"}, "8-bit operands need scales"},
      {"accumulate", {"f32"}, "products are summed in f32"},
      {"accumulate_block", {"0"}, "partial sums are not rounded"},
      {"residual", {"f32", "bf16", "f16"}, "other formats of the residual stream are not available"},
      {"output", {"f32"}, "logits and losses are unrounded f32"},
      {"grads", {"f32", "bf16", "f16"}, "gradients in other formats need scales"},
      {"reduce", {"f32"}, "sums over ranks are f32"},
      {"optimizer",
       {"f32", "bf16"},
       "in f16 and in 8 bits (1-beta2)*g^2 rounds to 0 for g < 8e-4, and the first moment over eps explodes"},
      {"kv", {"f32", "bf16", "f16"}, "8-bit keys and values need scales"},
      {"checkpoint", {"f32"}, "models are written in f32"},
      {"saturate", {"false"}, "overflow goes to infinity"},
      {"flush_subnormals", {"false"}, "subnormals are kept"},
  };
  return table;
}

/// What a field may be where the masters are f64.
std::vector<std::string> allowed_in_f64(const Allowed& row) {
  const bool format = std::holds_alternative<std::optional<Scalar> Fields::*>(find_field(row.field)->member);
  return format && row.field != "checkpoint" ? std::vector<std::string>{"f64"} : row.values;
}

void check_fields(const Fields& fields, bool f64) {
  for (const Allowed& row : allowed_in_f32()) {
    const std::string value = field_text(fields, *find_field(row.field));
    const std::vector<std::string> values = f64 ? allowed_in_f64(row) : row.values;
    if (value.empty() || std::ranges::find(values, value) != values.end()) continue;
    const bool mixes_f64 = f64 ? values.front() == "f64" : value == "f64";
    throw ConfigError(
        fmt::format("{}={} is not available: {}; use {}={} ({})", row.field, value,
                    mixes_f64 ? "f64 is computed under 64-true only, where every format is f64" : row.why,
                    row.field, fmt::format("{}", fmt::join(values, "|")), trainable()));
  }
}

void check_rule_supported(const Rule& rule, bool f64) {
  if (!rule.operand.empty()) {
    throw ConfigError(fmt::format(
        "operand={} is not available: formats are decided for all operands of an op; leave it out",
        rule.operand));
  }
  if (rule.first_step || rule.last_step) {
    throw ConfigError(
        "steps is not available: one plan serves the whole run; leave it out, or resume with another policy");
  }
  if (rule.pass == Pass::update) {
    throw ConfigError(
        "pass=update is not available: the optimizer computes in the masters' format; leave the rule out");
  }
  check_fields(rule.fields, f64);
}

/// Whether the policy, or one of its rules, gives a format below 32 bits to `member`.
bool narrows(const Policy& policy, std::optional<Scalar> Fields::*member) {
  const auto narrow = [member](const Fields& f) { return f.*member && bytes_of(*(f.*member)) < 4; };
  return narrow(policy.fields()) ||
         std::ranges::any_of(policy.rules(), [&](const Rule& r) { return narrow(r.fields); });
}

/// A way of rounding that would round nothing, and a compensation of what is not lost, are refused.
void check_update_fields(const Policy& policy, const Fields& fields) {
  const bool weights = narrows(policy, &Fields::params), moments = narrows(policy, &Fields::optimizer);
  if (fields.kahan.value_or(false) && !weights) {
    throw ConfigError(
        fmt::format("kahan=true is not available: {} masters need no compensation; use kahan=false, or "
                    "params=bf16 ({})",
                    name(*policy.fields().params), trainable()));
  }
  if (fields.rounding.value_or(Rounding::nearest) != Rounding::nearest && !weights && !moments) {
    throw ConfigError(fmt::format(
        "rounding={} is not available: only weights and moments below f32 are rounded so, and here both are "
        "{}; use rounding=nearest, or params=bf16 or optimizer=bf16 ({})",
        field_text(fields, *find_field("rounding")), name(*policy.fields().params), trainable()));
  }
}

}  // namespace

void check_update(const Resolved& parameter) {
  const bool compensated = parameter.kahan && bytes_of(parameter.params) < 4;
  if (bytes_of(parameter.optimizer) >= 4 || parameter.rounding == Rounding::stochastic ||
      (parameter.rounding == Rounding::nearest && compensated)) {
    return;
  }
  throw ConfigError(fmt::format(
      "optimizer={} is not available with this rounding: a moment changes by less than half a unit in its "
      "last "
      "place where beta is near 1, and stays where it is; use rounding=stochastic, kahan=true with "
      "params=bf16 "
      "and rounding=nearest, or optimizer=f32",
      name(parameter.optimizer)));
}

void check_supported(const Policy& policy) {
  const bool f64 = policy.arithmetic() == Scalar::f64;
  check_fields(policy.fields(), f64);
  check_update_fields(policy, policy.fields());
  check_update(policy.resolve({"", "update", Pass::update, 0}));
  for (const Rule& rule : policy.rules()) {
    try {
      check_rule_supported(rule, f64);
      check_update_fields(policy, rule.fields);
    } catch (const ConfigError& e) {
      throw ConfigError(fmt::format("rule {} ({}): {}", quoted(rule.str()), rule.origin, e.what()));
    }
  }
}

}  // namespace mantissa::precision
