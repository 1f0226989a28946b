// A training run and its output: directory, lock, metrics, states, model, summary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/comm/communicator.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/train/explain/explained.h"
#include "mantissa/train/run/directory.h"
#include "mantissa/train/steps/task.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

/// Events of a run. All are optional, and are called on the thread that called train().
struct Events {
  std::function<void(const explain::Explained& plan)> on_plan;
  std::function<void(const train::StepReport& step, double seconds_left)> on_step;
  std::function<void(std::int64_t step, const train::Validation& validation)> on_validation;
  std::function<void()> before_state;  // what listeners wrote about its steps must be on the disk then
  std::function<void(std::int64_t step, const std::filesystem::path& state)> on_state;
  std::function<void(const std::string& text)> on_note;
  std::function<void(const Warning& warning)> on_warning;
};

struct Result {
  std::int64_t steps = 0;
  std::int64_t steps_here = 0;  // run by this call
  double first_loss = 0;  // of the first step of this call, or its second if run.skip_batches has the first
  std::int64_t first_loss_step = 0;
  double final_loss = 0;
  std::optional<train::Validation> validation;
  std::int64_t tokens = 0;       // since the start of the run
  std::int64_t tokens_here = 0;  // predicted by this call
  double seconds = 0;            // of this call
  std::size_t predicted_peak_bytes = 0, measured_peak_bytes = 0;
  std::int64_t skipped = 0;
  double fallback_share = 0;        // of blocks of products that units left to FMA
  std::vector<Warning> findings;    // of a finished run: what its roundings lost (train/steps/health_watch.h)
  std::string policy, policy_name;  // the line; short_line()
  std::string weights_xxh64;
  std::filesystem::path model;  // the checkpoint; empty if the run was interrupted
  Scalar model_format = Scalar::f32;
  weights::SavedModel weights;  // of a finished run, if requested
  bool interrupted = false;     // by a stop: the completed steps are saved as a state, if any
};

/// The inputs of a run. `told` are the messages on how the config was read.
struct Start {
  const config::RunConfig& config;
  config::Told told;
  weights::ModelSource source;
  std::unique_ptr<train::Task> task;
  DirectoryOptions directory;
  bool return_weights = false;
  // written next to the model's weights, such as the tokenizer's: name and contents
  std::vector<std::pair<std::string, std::string>> files = {};
  comm::Communicator* ranks = nullptr;  // that share the run; null: this process alone
};

/// Trains and writes a run directory (docs/cli/run-directory.md). If several ranks share the run, each calls
/// this alike; the first one writes and tells, and the others return an empty result. After a stop, the
/// completed steps are saved as a state. Throws ConfigError, FileError or ResourceError before the first
/// step. Throws RunStopped if the run cannot continue or ends with a non-finite loss; then states are
/// written, but no model.
Result train(Start start, const Events& events, const runtime::Device& device, std::stop_token stop);

}  // namespace mantissa::run
