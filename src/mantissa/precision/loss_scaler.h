// Loss scalers: what the loss is multiplied by before the backward pass, and how that moves with overflows.
// Rules of DeepSpeed (≥ 0.17.1, deepspeed/runtime/fp16/loss_scaler.py, under ZeRO 1–3) and of PyTorch
// (torch.amp.GradScaler), as docs/numerics.md states them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::precision {

enum class ScalerRule : std::uint8_t { deepspeed, torch, constant };
std::string_view name(ScalerRule rule);

/// DeepSpeed's names and defaults. `torch` reads initial_scale and window (the growth interval) only.
struct ScalerOptions {
  ScalerRule rule = ScalerRule::deepspeed;
  double initial_scale = 65536;
  std::int64_t window = 1000;  // clean steps before the scale grows
  std::int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_scale = 1;
  bool raise_at_min = true;  // stop where the scale would have to fall below min_scale
  friend bool operator==(const ScalerOptions&, const ScalerOptions&) = default;

  /// PyTorch's defaults: 2^16, growth after 2000 clean steps.
  static ScalerOptions torch();
  /// A scale that never moves; overflowing steps are still skipped.
  static ScalerOptions constant(double scale);
};

/// A scaler between two steps. `iteration` counts attempts; under `torch`, clean ones since the last change.
struct ScalerState {
  double scale = 1;
  std::int64_t iteration = 0, last_overflow = -1, hysteresis = 1;
  friend bool operator==(const ScalerState&, const ScalerState&) = default;
};

class LossScaler {
 public:
  explicit LossScaler(const ScalerOptions& options);

  /// What the step at hand multiplies its loss by, and divides its gradients by.
  double scale() const { return state_.scale; }
  /// Whether an overflow now would ask for less than the minimum, so that the run has to stop. Nothing but
  /// the caller's decision follows from it: update() then keeps the scale.
  bool at_minimum() const;
  /// After an attempt. A factor of 2 each way.
  void update(bool overflow);

  const ScalerOptions& options() const { return options_; }
  const ScalerState& state() const { return state_; }
  /// Goes on from `state`; a constant scale keeps its own value.
  void restore(const ScalerState& state);

 private:
  void update_deepspeed(bool overflow);
  void update_torch(bool overflow);

  ScalerOptions options_;
  ScalerState state_;
};

/// A pattern of overflows played through a scaler.
struct ScalerReplay {
  std::vector<double> scales;            // after each step
  std::vector<std::int64_t> hysteresis;  // after each step
  std::string error;                     // where the rule stops the run: why; the step is not in the lists
};
ScalerReplay replay(const ScalerOptions& options, const std::vector<bool>& overflows);

}  // namespace mantissa::precision
