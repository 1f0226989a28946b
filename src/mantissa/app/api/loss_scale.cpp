#include <fmt/format.h>

#include <cmath>

#include "mantissa/app/api/loss_scale.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/precision/compat/deepspeed.h"
#include "mantissa/precision/policy/loss_scaler.h"
#include "mantissa/report/metrics.h"

namespace mantissa::api {
namespace {

std::vector<bool> read_flags(const std::string& text) {
  std::vector<bool> flags;
  for (const char c : text) {
    if (c == '0' || c == '1') {
      flags.push_back(c == '1');
    } else if (c != ' ' && c != ',') {
      throw ConfigError("--overflows {}: write a 0 for every clean step and a 1 for every overflow", text);
    }
  }
  if (flags.empty()) throw ConfigError("--overflows: is empty; write for example 0110");
  return flags;
}

std::vector<bool> flags_of(const LossScaleOptions& o) {
  return o.metrics.empty() ? read_flags(o.overflows) : report::read_skipped(o.metrics);
}

}  // namespace

LossScaleReplay replay_loss_scale(const LossScaleOptions& o) {
  if (o.overflows.empty() == o.metrics.empty())
    throw ConfigError("loss-scale: give exactly one of --overflows and --from");
  if (o.constant > 0) {
    const precision::ScalerReplay r =
        precision::replay(precision::ScalerOptions::constant(o.constant), flags_of(o));
    return {r.scales, r.hysteresis, r.error};
  }
  precision::ScalerOptions options = o.torch ? precision::ScalerOptions::torch() : precision::ScalerOptions{};
  options.initial_scale = std::ldexp(1.0, o.initial_scale_power);
  options.window = o.window.value_or(options.window);
  if (!o.torch) {
    options.hysteresis = o.hysteresis;
    options.consecutive_hysteresis = o.consecutive_hysteresis;
    options.min_scale = o.min_scale;
    options.raise_at_min = o.raise_at_min;
  }
  const precision::ScalerReplay r = precision::replay(options, flags_of(o));
  return {r.scales, r.hysteresis, r.error};
}

LossScaleFile read_loss_scale(const std::filesystem::path& deepspeed) {
  const compat::DeepSpeedFile file = compat::read_deepspeed(deepspeed);
  if (file.scaler.empty()) {
    throw ConfigError(
        "--deepspeed {}: has no loss scale, because fp16 is not enabled. Fix: set fp16.enabled in it",
        file.name);
  }
  LossScaleFile out;
  LossScaleOptions& o = out.options;
  for (const compat::DeepSpeedSetting& s : file.scaler) {  // validated by the file's reader
    if (s.key == "rule") o.torch = s.value == "\"torch\"";
    if (s.key == "loss_scale") o.constant = std::stod(s.value);
    if (s.key == "initial_scale_power") o.initial_scale_power = std::stoi(s.value);
    if (s.key == "loss_scale_window") o.window = std::stoll(s.value);
    if (s.key == "hysteresis") o.hysteresis = std::stoll(s.value);
    if (s.key == "consecutive_hysteresis") o.consecutive_hysteresis = s.value == "true";
    if (s.key == "min_loss_scale") o.min_scale = std::stod(s.value);
    if (s.key == "raise_error_at_min_scale") o.raise_at_min = s.value == "true";
  }
  if (!file.scaler_warning.empty())
    out.warnings.push_back(fmt::format("{}: {}", file.short_name(), file.scaler_warning));
  return out;
}

}  // namespace mantissa::api
