// Loss scalers: the factor on the loss before the backward pass, and its reaction to overflows. The rules are
// those of DeepSpeed (≥ 0.17.1, deepspeed/runtime/fp16/loss_scaler.py, ZeRO stages 1–3) and PyTorch
// (torch.amp.GradScaler); docs/numerics.md describes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::precision {

enum class ScalerRule : std::uint8_t { deepspeed, torch, constant };

/// DeepSpeed's names and defaults. `torch` uses only initial_scale and window (the growth interval).
struct ScalerOptions {
  ScalerRule rule = ScalerRule::deepspeed;
  double initial_scale = 65536;
  std::int64_t window = 1000;  // clean steps before the scale grows
  std::int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_scale = 1;
  bool raise_at_min = true;  // stop when the scale would fall below min_scale
  friend bool operator==(const ScalerOptions&, const ScalerOptions&) = default;

  /// PyTorch's defaults: 2^16, growth after 2000 clean steps.
  static ScalerOptions torch();
  /// A constant scale. Overflowing steps are still skipped.
  static ScalerOptions constant(double scale);
};

/// A scaler between two steps. `iteration` counts attempts; under `torch`, clean steps since the last change.
struct ScalerState {
  double scale = 1;
  std::int64_t iteration = 0, last_overflow = -1, hysteresis = 1;
  friend bool operator==(const ScalerState&, const ScalerState&) = default;
};

class LossScaler {
 public:
  explicit LossScaler(const ScalerOptions& options);

  /// The factor on the loss of the current step, and the divisor of its gradients.
  double scale() const { return state_.scale; }
  /// True if an overflow now would lower the scale below the minimum, so the run must stop. The caller
  /// decides; update() then keeps the scale.
  bool at_minimum() const;
  /// Records an attempt. The scale changes by a factor of 2.
  void update(bool overflow);

  const ScalerOptions& options() const { return options_; }
  const ScalerState& state() const { return state_; }
  /// Continues from `state`. A constant scale keeps its own value.
  void restore(const ScalerState& state);

 private:
  void update_deepspeed(bool overflow);
  void update_torch(bool overflow);

  ScalerOptions options_;
  ScalerState state_;
};

/// The result of replaying a pattern of overflows.
struct ScalerReplay {
  std::vector<double> scales;            // after each step
  std::vector<std::int64_t> hysteresis;  // after each step
  std::string error;  // why the rule stops the run, if it does; the lists end before that step
};
ScalerReplay replay(const ScalerOptions& options, const std::vector<bool>& overflows);

}  // namespace mantissa::precision
