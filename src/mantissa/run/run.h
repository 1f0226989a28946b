// A training run and what it leaves behind: directory, lock, metrics, states, model, summary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "mantissa/base/error.h"
#include "mantissa/config/run_config.h"
#include "mantissa/explain/explained.h"
#include "mantissa/run/directory.h"
#include "mantissa/text/dataset.h"
#include "mantissa/train/trainer.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::run {

/// What a run tells while it runs. All are optional; they are called on the thread that called train().
struct Events {
  std::function<void(const explain::Explained& plan)> on_plan;
  std::function<void(const train::StepReport& step, double seconds_left)> on_step;
  std::function<void(std::int64_t step, double loss)> on_validation;
  std::function<void(std::int64_t step, const std::filesystem::path& state)> on_state;
  std::function<void(const std::string& text)> on_note;
  std::function<void(const Warning& warning)> on_warning;
};

struct Result {
  std::int64_t steps = 0;
  std::int64_t steps_here = 0;  // of them, that this call ran
  double first_loss = 0;        // of the first step that this call ran
  double final_loss = 0;
  std::optional<double> validation_loss;
  std::int64_t tokens = 0;       // since the start of the run
  std::int64_t tokens_here = 0;  // of them, in this call
  double seconds = 0;            // of this call
  std::size_t predicted_peak_bytes = 0, measured_peak_bytes = 0;
  std::int64_t skipped = 0;
  std::string policy;
  std::string weights_xxh64;
  std::filesystem::path model;  // the checkpoint; empty where the run was interrupted
  Scalar model_format = Scalar::f32;
  weights::SavedModel weights;  // of a finished run, where they were asked for
  bool interrupted = false;     // by a stop: the state is saved
};

/// The run of a config: `told` is what there is to tell of how the config was read.
struct Start {
  const config::RunConfig& config;
  config::Told told;
  weights::ModelSource source;
  text::Dataset data;
  DirectoryOptions directory;
  bool return_weights = false;
};

/// Trains, and leaves a run directory as docs/cli.md describes it. After a stop, the state is saved. Throws
/// ConfigError, FileError, ResourceError before the first step; RunStopped where the run cannot go on, or
/// ends with a loss that is not finite: the states stay, and no model is written.
Result train(Start start, const Events& events, const runtime::Device& device, std::stop_token stop);

}  // namespace mantissa::run
