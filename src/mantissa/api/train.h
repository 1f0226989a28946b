// Training: options, events, and the summary of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/api/config.h"
#include "mantissa/api/data.h"
#include "mantissa/api/hardware.h"
#include "mantissa/api/plan.h"
#include "mantissa/api/tensor.h"
#include "mantissa/base/error.h"

namespace mantissa::api {

/// One optimizer step.
struct Step {
  std::int64_t step = 0;
  std::int64_t steps = 0;   // of the whole run
  double loss = 0;          // nats per token: Σ weight · (−log p) / Σ weight over the step's tokens
  std::int64_t tokens = 0;  // predicted since the start of the run
  double grad_norm = 0;     // before clipping
  double lr = 0;
  std::optional<double> loss_scale;  // that was used in this step; nothing under a policy without one
  bool skipped = false;              // the gradients overflowed: the step changed nothing but the scale
  std::string overflow;              // of a skipped step: op, value, format and data rows
  double tokens_per_second = 0;
  double peak_share = 0;    // of the machine's measured rate of fused multiply-adds, 0 to 1
  double seconds = 0;       // of this step
  double seconds_left = 0;  // of the run, by the mean of the steps of this call
};

/// What a run reports while it runs. All are optional; they are called on the thread that called train(). An
/// exception ends the run and reaches the caller; no state is written then.
struct Events {
  std::function<void(const Plan&)> on_plan;
  std::function<void(const Step&)> on_step;
  std::function<void(std::int64_t step, double loss)> on_validation;
  std::function<void(std::int64_t step, const std::filesystem::path&)> on_state;
  std::function<void(const std::string&)> on_note;  // each once: how the config was read, and the like
  std::function<void(const Warning&)>
      on_warning;  // each once: what goes wrong without stopping the run, with cures
};

struct TrainOptions {
  std::filesystem::path out;  // empty: the config's run.out
  bool overwrite = false;     // start anew where `out` holds a state; else that is refused
  std::optional<std::int64_t>
      resume;  // a step, or 0 for the newest state (from the start where there is none)
  Data data;   // from memory, in place of the config's source
  std::shared_ptr<const Weights> weights;  // to begin with, in place of those of the config's model
  bool return_weights = false;             // fill Summary::weights
  Hardware hardware;
};

struct Summary {
  std::int64_t steps = 0;
  std::int64_t steps_here = 0;  // of them, that this call ran; 0 where the run was complete before
  double first_loss = 0;        // of the first step this call ran
  double final_loss = 0;
  std::optional<double> validation_loss;
  std::int64_t tokens = 0;       // since the start of the run
  std::int64_t tokens_here = 0;  // of them, in this call
  double seconds = 0;            // of this call
  std::size_t predicted_peak_bytes = 0, measured_peak_bytes = 0;
  std::int64_t skipped = 0;
  std::string policy;
  std::string weights_xxh64;
  std::filesystem::path model;  // the checkpoint, in Hugging Face's layout
  std::string model_format;     // of its weights: "f32"
  std::string model_config;     // the checkpoint's config.json, and its weights, where they were asked for
  std::shared_ptr<const Weights> weights;
  bool interrupted = false;  // by the stop: the state is saved, run with `resume` to go on
};

/// Trains, and leaves a run directory as docs/cli.md describes it. Throws ConfigError, FileError,
/// ResourceError before the first step; RunStopped where the run cannot go on, or ends with a loss that is
/// not finite: the states stay, and no model is written.
Summary train(const Config& config, const TrainOptions& options = {}, const Events& events = {},
              std::stop_token stop = {});

}  // namespace mantissa::api
