#include <fmt/format.h>

#include <cmath>

#include "mantissa/api/loss_scale.h"
#include "mantissa/base/error.h"
#include "mantissa/precision/loss_scaler.h"
#include "mantissa/report/metrics.h"

namespace mantissa::api {
namespace {

std::vector<bool> read_flags(const std::string& text) {
  std::vector<bool> flags;
  for (const char c : text) {
    if (c == '0' || c == '1') {
      flags.push_back(c == '1');
    } else if (c != ' ' && c != ',') {
      throw ConfigError(
          fmt::format("--overflows {}: write a 0 for every clean step and a 1 for every overflow", text));
    }
  }
  if (flags.empty()) throw ConfigError("--overflows: is empty; write for instance 0110");
  return flags;
}

}  // namespace

LossScaleReplay replay_loss_scale(const LossScaleOptions& o) {
  if (o.overflows.empty() == o.metrics.empty())
    throw ConfigError("loss-scale: give exactly one of --overflows and --from");
  precision::ScalerOptions options = o.torch ? precision::ScalerOptions::torch() : precision::ScalerOptions{};
  options.initial_scale = std::ldexp(1.0, o.initial_scale_power);
  options.window = o.window.value_or(options.window);
  if (!o.torch) {
    options.hysteresis = o.hysteresis;
    options.consecutive_hysteresis = o.consecutive_hysteresis;
    options.min_scale = o.min_scale;
    options.raise_at_min = o.raise_at_min;
  }
  const std::vector<bool> flags =
      o.metrics.empty() ? read_flags(o.overflows) : report::read_skipped(o.metrics);
  const precision::ScalerReplay r = precision::replay(options, flags);
  return {r.scales, r.hysteresis, r.error};
}

}  // namespace mantissa::api
