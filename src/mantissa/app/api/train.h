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

#include "mantissa/app/api/config.h"
#include "mantissa/app/api/data.h"
#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/plan.h"
#include "mantissa/app/api/ranks.h"
#include "mantissa/app/api/reward.h"
#include "mantissa/app/api/tensor.h"
#include "mantissa/core/base/error.h"

namespace mantissa::api {

/// Names and values, as in metrics.jsonl.
using Metrics = std::vector<std::pair<std::string, double>>;

/// One optimizer step.
struct Step {
  std::int64_t step = 0;
  std::int64_t steps = 0;   // of the whole run
  double loss = 0;          // nats per token: Σ weight · (−log p) / Σ weight over the step's tokens
  std::int64_t tokens = 0;  // predicted tokens since the start of the run
  double grad_norm = 0;     // before clipping
  double lr = 0;
  std::optional<double> loss_scale;  // used in this step; null under a policy without one
  bool skipped = false;              // the step changed no weight
  std::string overflow;              // of a skipped step, why: op, value, format and data rows
  double tokens_per_second = 0;
  double peak_share = 0;    // of the measured peaks of the units that multiply, 0 to 1
  double seconds = 0;       // of this step
  double seconds_left = 0;  // of the run, by the mean time of this call's steps
  // Of supervised fine-tuning: the share of computed tokens that are not predicted, and of the places of the
  // step's rows or packs that hold no token, which are not computed.
  std::optional<double> masked_share, padding_share;
  /// Other measurements of the objective, as in metrics.jsonl: "reward", "accuracy".
  Metrics metrics = {};
};

/// Events of a run. All are optional, and are called on the thread that called train(). An exception ends the
/// run and propagates to the caller; no state is written then.
struct Events {
  std::function<void(const Plan&)> on_plan;
  std::function<void(const Step&)> on_step;
  std::function<void(std::int64_t step, double loss)> on_validation;
  std::function<void(std::int64_t step, const Metrics&)> on_measurements;  // other ones on held-out data
  std::function<void(std::int64_t step, const std::filesystem::path&)> on_state;
  std::function<void(const std::string&)> on_note;  // once for each note, such as how the config was read
  // once for each problem that does not stop the run, with cures
  std::function<void(const Warning&)> on_warning;
};

struct TrainOptions {
  std::filesystem::path out;  // empty: the config's run.out
  // start from the beginning if `out` contains a state or a model of a run; otherwise that is an error
  bool overwrite = false;
  // a step, or 0 for the newest state (from the beginning if there is none)
  std::optional<std::int64_t> resume;
  Data data;                               // from memory, in place of the config's source
  std::shared_ptr<const Weights> weights;  // initial weights, in place of those of the config's model
  bool return_weights = false;             // fill Summary::weights
  /// Under rl: scores the responses in place of rl.reward, on the thread that called train(). A resumed run
  /// has the same bits if the rewards depend only on what the function gets.
  RewardFunction reward;
  Hardware hardware;
  Ranks ranks;  // that share the run: each calls train() alike, and only the first one writes and has events
};

struct Summary {
  std::int64_t steps = 0;
  std::int64_t steps_here = 0;       // run by this call; 0 if the run was already complete
  double first_loss = 0;             // of the first step of this call
  std::int64_t first_loss_step = 0;  // its number; of a resumed run, not 1
  double final_loss = 0;
  std::optional<double> validation_loss;
  std::int64_t tokens = 0;       // since the start of the run
  std::int64_t tokens_here = 0;  // predicted by this call
  double seconds = 0;            // of this call
  std::size_t predicted_peak_bytes = 0, measured_peak_bytes = 0;
  std::int64_t skipped = 0;
  double fallback_share = 0;  // of blocks of products that units left to FMA (docs/numerics.md, "Hardware")
  /// Of a finished run: updates, gradients or scaled weights that the formats lost, with cures; empty for a
  /// healthy run. Measured every log.health_interval steps.
  std::vector<Warning> findings;
  std::string policy;
  std::string policy_name;  // "bf16-mixed", or the nearest preset with the fields that differ
  std::string weights_xxh64;
  std::filesystem::path model;  // the checkpoint, in Hugging Face's layout
  std::string model_format;     // of its weights: "f32"
  std::string model_config;     // config.json and weights of the checkpoint, if requested
  std::shared_ptr<const Weights> weights;
  // by a stop: the completed steps are saved as a state (if any); continue with `resume`
  bool interrupted = false;
};

/// Trains and writes a run directory (docs/cli/train.md). Throws ConfigError, FileError or ResourceError for
/// faults of config, data, files or machine, before the first step except for rows of Data::next and for
/// writing files. Throws RunStopped if the run cannot continue or ends with a non-finite loss; then states
/// are written, but no model. A stop request discards only the current step (docs/library.md, "Stopping and
/// resuming").
Summary train(const Config& config, const TrainOptions& options = {}, const Events& events = {},
              std::stop_token stop = {});

/// Returns the steps of the states in a run directory, oldest first, or none if it does not exist.
std::vector<std::int64_t> state_steps(const std::filesystem::path& run);

}  // namespace mantissa::api
