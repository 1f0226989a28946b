// [precision.loss_scale]: DeepSpeed's keys, and the policy's own loss scale.
#include <fmt/format.h>

#include <cmath>

#include "mantissa/core/base/error.h"
#include "mantissa/precision/policy/loss_scale.h"
#include "mantissa/setup/config/read.h"

namespace mantissa::config {
namespace {

using precision::LossScale;
using precision::ScalerOptions;

constexpr const char* kSection = "precision.loss_scale";

/// Keys without effect are an error, since they are set by mistake: those under a policy without a loss
/// scale. Exceptions are the keys of a file whose policy the command line replaced, and of a DeepSpeed file.
void refuse_keys(const RunConfig& config, const Entries& entries, bool policy_replaced) {
  for (const Entry& entry : entries.all) {
    if (entry.section != kSection || entry.deepspeed || (policy_replaced && entry.raw.empty())) continue;
    refuse(entry, fmt::format("the policy ({}) has no loss scale, so this key has no effect; remove it, or "
                              "add loss_scale=dynamic to the policy",
                              config.policy.short_line()));
  }
}

/// Returns the policy's scale as modified by the keys.
LossScale resolved_scale(const RunConfig& config, const Entries& entries) {
  if (config.loss_scale.loss_scale > 0) return {LossScale::Kind::constant, config.loss_scale.loss_scale};
  if (entries.find(kSection, "initial_scale_power") != nullptr ||
      (entries.find(kSection, "loss_scale") != nullptr &&
       config.policy.loss_scale().kind == LossScale::Kind::constant)) {
    return {LossScale::Kind::dynamic,
            std::ldexp(1.0, static_cast<int>(config.loss_scale.initial_scale_power))};
  }
  return config.policy.loss_scale();
}

void check_torch(const Entries& entries) {
  for (const Entry& entry : entries.all) {
    if (entry.section == kSection && !entry.deepspeed && !torch_has(entry.key))
      refuse(entry, "PyTorch's rule does not use this key; remove it, or write rule = \"deepspeed\"");
  }
}

}  // namespace

bool torch_has(std::string_view key) {
  return key == "rule" || key == "loss_scale" || key == "initial_scale_power" || key == "loss_scale_window" ||
         key == "forward_overflow_patience";
}

void settle_loss_scale(RunConfig& config, const Entries& entries, bool policy_replaced) {
  LossScaleSection& section = config.loss_scale;
  if (config.policy.loss_scale().kind == LossScale::Kind::none) {
    refuse_keys(config, entries, policy_replaced);
    section = {};
    return;
  }
  const LossScale scale = resolved_scale(config, entries);
  if (!precision::is_loss_scale(scale.value)) {
    throw ConfigError(
        fmt::format("{}: precision.loss_scale.loss_scale = {}: f32 must hold the scale and its reciprocal; "
                    "write a number from 2^-127 to 2^127, or 0 for a dynamic scale",
                    entries.where(kSection, "loss_scale"), scale.value));
  }
  precision::Fields fields;
  fields.loss_scale = scale;
  config.policy = config.policy.with_fields(fields);
  section.loss_scale = scale.kind == LossScale::Kind::constant ? scale.value : 0;
  if (section.rule == "torch") {
    check_torch(entries);
    const LossScaleSection defaults;  // of keys that PyTorch's rule lacks
    section.hysteresis = defaults.hysteresis;
    section.consecutive_hysteresis = defaults.consecutive_hysteresis;
    section.min_loss_scale = defaults.min_loss_scale;
    section.raise_error_at_min_scale = defaults.raise_error_at_min_scale;
    if (entries.find(kSection, "loss_scale_window") == nullptr)
      section.loss_scale_window = ScalerOptions::torch().window;
  }
  if (scale.kind != LossScale::Kind::dynamic) return;
  int power = 0;
  if (std::frexp(scale.value, &power) != 0.5) {
    throw ConfigError(fmt::format(
        "{}: loss_scale=dynamic:{}: the initial dynamic scale must be a power of two, such as dynamic:2^16",
        entries.where("precision", "policy"), scale.value));
  }
  section.initial_scale_power = power - 1;
  if (section.rule == "deepspeed" && section.min_loss_scale > scale.value) {
    throw ConfigError(
        fmt::format("{}: precision.loss_scale.min_loss_scale = {} is above the initial scale, 2^{}; lower "
                    "it, or raise initial_scale_power",
                    entries.where(kSection, "min_loss_scale"), section.min_loss_scale, power - 1));
  }
}

std::optional<ScalerOptions> scaler_options(const RunConfig& config) {
  const LossScale scale = config.policy.loss_scale();
  const LossScaleSection& section = config.loss_scale;
  if (scale.kind == LossScale::Kind::none) return std::nullopt;
  if (scale.kind == LossScale::Kind::constant) return ScalerOptions::constant(scale.value);
  ScalerOptions options = section.rule == "torch" ? ScalerOptions::torch() : ScalerOptions{};
  options.initial_scale = scale.value;
  options.window = section.loss_scale_window;
  if (options.rule == precision::ScalerRule::torch) return options;
  options.hysteresis = section.hysteresis;
  options.consecutive_hysteresis = section.consecutive_hysteresis;
  options.min_scale = section.min_loss_scale;
  options.raise_at_min = section.raise_error_at_min_scale;
  return options;
}

}  // namespace mantissa::config
