#include "mantissa/setup/config/adapter.h"

#include <algorithm>
#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/frozen_formats.h"
#include "mantissa/setup/config/options.h"

namespace mantissa::config {
namespace {

constexpr std::string_view kAdapter = "adapter";
constexpr std::array<std::string_view, 5> kOfAdapter = {"rank", "alpha", "target", "rslora", "dora"};

/// True for the keys that an adapter of linear layers has in its files.
bool is_of_adapter(std::string_view key) {
  return std::ranges::find(kOfAdapter, key) != kOfAdapter.end();
}

std::optional<Scalar> at_least_f32(Scalar format) {
  return holds(format, Scalar::f32) ? std::nullopt : std::optional(Scalar::f32);
}

/// Returns `policy` with frozen weights in the format `base`, if there is one.
precision::Policy on_base(const precision::Policy& policy, std::optional<Scalar> base) {
  if (!base) return policy;
  precision::Rule rule;
  rule.fields.params = base;
  rule.origin = "adapter.base";
  return policy.with_default(std::move(rule));
}

/// Rejects weights that are rounded for serving: the sum of a base and an adapter would be rounded again.
void check_weights(const precision::Policy& policy) {
  const auto check = [](const precision::Fields& fields) {
    const WeightFormat format = fields.weights.value_or(WeightFormat::none);
    if (format == WeightFormat::none) return;
    throw ConfigError(
        "weights={} is not available under an adapter of linear layers: merged weights are rounded again, to "
        "other values than those of the training. Fix: weights=none, with adapter.base = \"nf4\" or \"int8\" to "
        "hold the base in fewer bits; or adapter.kind = \"none\" to train all weights",
        name(format));
  };
  check(policy.fields());
  for (const precision::Rule& rule : policy.rules()) check(rule.fields);
}

/// Returns `policy` with the parameters of an adapter in f32 or wider. `params` is the policy's own format,
/// which a base may have replaced.
precision::Policy of_adapter(const precision::Policy& policy, Scalar params) {
  const precision::Fields& fields = policy.fields();
  precision::Rule rule;
  // Also heads that are trained as a whole (engine/model/graphs.h).
  rule.match = "{*.lora_A,*.lora_B,*.lora_magnitude_vector,*.initial_state,score,value_head}";
  rule.origin = "adapter";
  rule.fields.params = at_least_f32(params).value_or(params);
  rule.fields.grads = at_least_f32(*fields.grads);
  rule.fields.optimizer = at_least_f32(fields.optimizer->type);  // states in blocks stay
  return policy.with_default(std::move(rule));
}

}  // namespace

void check_adapter(const RunConfig& config, const Entries& entries) {
  const AdapterSection& adapter = config.adapter;
  for (const std::string& key : keys_of(kAdapter)) {
    const Entry* entry = entries.find(kAdapter, key);
    if (entry == nullptr || key == "kind") continue;
    if (adapter.kind == "none")
      refuse(*entry, "only an adapter uses it; set adapter.kind = \"lora\", or remove the key");
    if (adapter.kind == "state" && (is_of_adapter(key) || key == "dropout"))
      refuse(*entry, "adapter.kind = \"state\" trains the initial states of all recurrences; remove the key");
    if (!adapter.path.empty() && is_of_adapter(key))
      refuse(*entry, "the adapter of adapter.path has its own; remove the key");
  }
  if (adapter.kind == "none") return;
  for (const optim::Group& group : config.optimizer.groups) {
    if (!group.quantize) continue;
    const std::string_view format = traits(*group.quantize).name;
    throw ConfigError(
        "{}: optimizer.group match = {}: quantize = \"{}\" does not apply under an adapter, whose "
        "groups select among its own parameters. Fix: remove the group, and set adapter.base = "
        "\"{}\" to hold the linear layers of the base in it",
        group.origin, in_quotes(group.match), format, format);
  }
}

std::optional<QuantFormat> base_blocks(const AdapterSection& adapter) {
  return adapter.kind == "none" ? std::nullopt : parse_frozen_format(adapter.base);
}

bool prints_adapter_key(const AdapterSection& adapter, std::string_view key) {
  if (adapter.kind == "none") return key == "kind";
  return adapter.kind == "state" ? !is_of_adapter(key) && key != "dropout"
                                 : adapter.path.empty() || !is_of_adapter(key);
}

std::optional<Scalar> base_format(const AdapterSection& adapter) {
  return parse_plain_base(adapter.base);
}

precision::Policy adapted_policy(const precision::Policy& policy, const AdapterSection& adapter) {
  if (adapter.kind == "none") return policy;
  if (adapter.kind != "state") check_weights(policy);
  return of_adapter(on_base(policy, base_format(adapter)), *policy.fields().params);
}

precision::Policy adapted_policy(const precision::Policy& policy, const model::ModelConfig& model) {
  precision::Policy adapted = on_base(policy, model.base_plain);
  return model.adapter == nullptr ? adapted : of_adapter(adapted, *policy.fields().params);
}

}  // namespace mantissa::config
