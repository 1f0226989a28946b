// Replay of overflows through a loss scaler.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mantissa::api {

/// Settings of a loss scaler, with DeepSpeed's names. `torch` selects PyTorch's rule, which uses only
/// initial_scale_power and window.
struct LossScaleOptions {
  bool torch = false;
  int initial_scale_power = 16;
  std::optional<std::int64_t> window;  // default 1000, or 2000 for PyTorch's rule
  std::int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_scale = 1;
  bool raise_at_min = true;
  double constant = 0;            // above 0: a constant scale
  std::string overflows;          // "0110": a 1 for every step that overflows
  std::filesystem::path metrics;  // or a run's metrics.jsonl
};
struct LossScaleReplay {
  std::vector<double> scales;  // after every step
  std::vector<std::int64_t> hysteresis;
  std::string error;  // the reason if the rule stops the run, or ""
};
/// Replays `overflows`, or the skipped steps of `metrics`, through the scaler. Throws ConfigError, FileError.
LossScaleReplay replay_loss_scale(const LossScaleOptions& options);

/// The scaler of a DeepSpeed file, and how Mantissa's rule differs from it. Throws ConfigError if the file
/// has none.
struct LossScaleFile {
  LossScaleOptions options;
  std::vector<std::string> warnings;
};
LossScaleFile read_loss_scale(const std::filesystem::path& deepspeed);

}  // namespace mantissa::api
