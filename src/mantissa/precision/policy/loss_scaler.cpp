#include "mantissa/precision/policy/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace mantissa::precision {
namespace {

constexpr double kFactor = 2;

}  // namespace

ScalerOptions ScalerOptions::torch() {
  ScalerOptions options;
  options.rule = ScalerRule::torch;
  options.window = 2000;
  options.hysteresis = 1;
  return options;
}

ScalerOptions ScalerOptions::constant(double scale) {
  ScalerOptions options;
  options.rule = ScalerRule::constant;
  options.initial_scale = scale;
  options.hysteresis = 1;
  return options;
}

LossScaler::LossScaler(const ScalerOptions& options)
    : options_(options), state_{options.initial_scale, 0, -1, options.hysteresis} {}

bool LossScaler::at_minimum() const {
  return options_.rule == ScalerRule::deepspeed && options_.raise_at_min &&
         (options_.hysteresis == 1 || state_.hysteresis == 1) && state_.scale == options_.min_scale;
}

void LossScaler::update(bool overflow) {
  if (options_.rule == ScalerRule::deepspeed) update_deepspeed(overflow);
  if (options_.rule == ScalerRule::torch) update_torch(overflow);
  if (options_.rule == ScalerRule::constant) ++state_.iteration;
}

void LossScaler::update_deepspeed(bool overflow) {
  if (overflow) {
    if (options_.hysteresis == 1 || state_.hysteresis == 1) {
      state_.scale = std::max(state_.scale / kFactor, options_.min_scale);
    } else {
      --state_.hysteresis;
    }
    state_.last_overflow = state_.iteration;
  } else {
    if (options_.consecutive_hysteresis) state_.hysteresis = options_.hysteresis;
    const std::int64_t clean = state_.iteration - state_.last_overflow - 1;
    if (clean > 0 && clean % options_.window == 0) {
      state_.scale *= kFactor;
      if (!options_.consecutive_hysteresis) state_.hysteresis = options_.hysteresis;
    }
  }
  ++state_.iteration;
}

void LossScaler::update_torch(bool overflow) {
  if (overflow) {
    state_.scale /= kFactor;
    state_.iteration = 0;
    return;
  }
  if (++state_.iteration < options_.window) return;
  state_.iteration = 0;
  // GradScaler stores its scale in f32 and never lets it grow to infinity.
  if (state_.scale * kFactor <= std::numeric_limits<float>::max()) state_.scale *= kFactor;
}

void LossScaler::restore(const ScalerState& state) {
  const double own = state_.scale;
  state_ = state;
  if (options_.rule == ScalerRule::constant) state_.scale = own;
}

ScalerReplay replay(const ScalerOptions& options, const std::vector<bool>& overflows) {
  LossScaler scaler(options);
  ScalerReplay result;
  for (std::size_t i = 0; i < overflows.size(); ++i) {
    if (overflows[i] && scaler.at_minimum()) {
      result.error = fmt::format(
          "step {}: the gradients overflow and the loss scale is at its minimum of {}; the run stops here",
          i + 1, options.min_scale);
      break;
    }
    scaler.update(overflows[i]);
    result.scales.push_back(scaler.scale());
    result.hysteresis.push_back(scaler.state().hysteresis);
  }
  return result;
}

}  // namespace mantissa::precision
