// The plan of a run or a generation as one value, printed as text for people and as JSON for programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/plan/rounding_points.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/kernels/processor.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/forecast/forecast.h"
#include "mantissa/setup/forecast/other_passes.h"
#include "mantissa/setup/forecast/ranks.h"
#include "mantissa/setup/forecast/target.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/train/explain/units.h"

namespace mantissa::explain {

/// This machine, and how it computes each format of the plan.
struct Here {
  std::string simd;
  int threads = 0;
  std::size_t memory_bytes = 0;
  forecast::Machine rates;
  std::vector<std::pair<std::string, kernels::FormatSupport>> formats;  // by name
  std::vector<UnitUse> units;                                           // that compute the plan's products
};

/// The needs of one stage of a run on another machine.
struct StageThere {
  std::size_t peak_bytes = 0;
  double seconds = 0;  // of a step; 0 if the machine lacks a format
  bool fits = false;
  std::int64_t largest_micro_batch_size = 0, sequences_that_fit = 0;
  std::size_t least_bytes = 0;  // with one leaf at once, if that does not fit
};

/// The plan on another machine, by the machine's stated rates.
struct There {
  forecast::Target target;
  std::vector<forecast::TargetFormat> needed;  // the formats of the plan on that machine
  std::vector<forecast::TargetFormat> others;  // the other formats of targets
  std::size_t peak_bytes = 0;
  std::size_t usable_bytes = 0;
  double seconds = 0;  // of a step or a token; 0 if the machine lacks a format
  bool fits = false;   // all stages
  std::vector<std::string> warnings;
  // For training, of `limiting_stage`:
  std::int64_t largest_micro_batch_size = 0;  // 0 if not even one leaf of sequences fits
  std::int64_t sequences_that_fit = 0;        // at once, for any batch
  std::size_t least_bytes = 0;                // of a run with one leaf at once, if that does not fit
  std::vector<StageThere> stages;             // of the run; empty: all steps are alike
  std::size_t limiting_stage = 0;             // the one of which the fewest sequences fit
  double total_seconds = 0;                   // of all steps; 0 if the machine lacks a format
};

/// The adapter that a run trains.
struct AdapterPlan {
  std::string kind;                        // "LoRA", "rsLoRA", "DoRA"
  std::size_t layers = 0, all_layers = 0;  // linear layers with an adapter, and all of them
  std::int64_t smallest_rank = 0, largest_rank = 0;
  double parameters = 0;          // trained
  std::size_t trained_bytes = 0;  // masters, copies, gradients and moments of the adapter
  std::size_t frozen_bytes = 0;   // the weights of the base that are held
  std::string base;               // format of the blocks of its linear layers; "": none
};

/// One stage of a run, as a run of its own.
struct StagePlan {
  std::int64_t first = 1, last = 1;  // steps, from 1
  std::int64_t sequence_length = 0, global_batch_size = 0, micro_batch_size = 0;
  double rope_theta = 0;  // 0: the model has no rotary angles
  double lr = 0;
  forecast::MemoryForecast memory;
  double seconds = 0;  // of a step
};

/// The part of a plan that is specific to training.
struct Training {
  config::RunConfig config;
  config::RunConfig stage_config;    // of the explained stage; equal to `config` without stages
  std::vector<StagePlan> stages;     // empty: all steps are alike
  std::size_t stage = 0;             // the explained one
  double rope_theta = 0;             // its base of the rotary angles; 0: none
  std::int64_t shards = 1;           // of a batch
  std::int64_t sequence_shards = 1;  // ranks that share a row: memory and time are those of one
  Scalar reduce = Scalar::f32;
  Rounding reduce_rounding = Rounding::nearest;
  std::int64_t sent_bytes = 0;  // for gradients, by each of shards · sequence_shards ranks, in a step
  std::vector<std::pair<std::string, double>> casts;  // scope and bytes of the remaining cast steps
  plan::CastsLeft casts_left;
  std::size_t steps = 0, chunked_steps = 0;  // of the plan; those that run for one chunk of tokens at a time
  forecast::MemoryForecast memory;
  std::int64_t largest_micro_batch_size = 0;          // 0 if not even one leaf of sequences fits
  std::size_t least_bytes = 0;                        // of a run with one leaf at once, if that does not fit
  std::optional<AdapterPlan> adapter = {};            // null: all weights are trained
  std::optional<forecast::RanksForecast> ranks = {};  // that share the run, if that was asked
  std::vector<std::string> exceptions;  // reasons why bits depend on the split into micro-batches
};

/// The part of a plan that is specific to generation, in bytes.
struct Generation {
  std::int64_t positions = 0;
  std::size_t weights = 0, cache = 0, work = 0, tables = 0, process = 0;  // bytes, which sum to the peak
};

/// Exactly one of `training` and `generation` has a value.
struct Explained {
  std::string preset, name, title, line, loss_scale;  // of the policy; name: Policy::short_line()
  std::string model_type;
  double parameters = 0;
  std::vector<plan::PlanRow> rows;
  std::vector<std::string> units;            // for each row the unit of its products, or ""
  std::vector<plan::RoundingRow> roundings;  // every place where a value may lose bits
  Here here;
  std::vector<There> targets;
  std::size_t peak_bytes = 0;
  double seconds = 0;          // of a step, or of a token
  double rollout_seconds = 0;  // that part of a step of rl: sampling, and the passes of other models; or 0
  bool fits = false;           // this machine
  std::vector<std::string> warnings, notes;
  std::string refusal;  // why a run rejects the rules, or ""
  std::optional<Training> training;
  std::optional<Generation> generation;
};

/// The ranks whose forecast a plan has.
struct AskedRanks {
  int ranks = 1, nodes = 1;
  std::optional<forecast::Network> network = {};
};

/// Compiles the run of `config` and explains the plan of its first step. `data_bytes` is the size of data
/// that is not yet in memory, `passes` are those of the run's objective. Measures the machine. Throws
/// ConfigError if precision.native_only is true and this machine, or one of `targets`, lacks a format.
Explained explain_training(const config::RunConfig& config, const model::ModelConfig& model,
                           const runtime::Device& device, const config::Told& told,
                           std::span<const forecast::Target> targets = {}, std::size_t data_bytes = 0,
                           std::span<const forecast::OtherPass> passes = {}, const AskedRanks& ranks = {});

/// Explains part `part` of a run of `config`, with the memory and the time of all its stages.
Explained describe_training(const config::RunConfig& config, const model::ModelConfig& model,
                            std::span<const programs::RunPart> parts, std::size_t part,
                            const forecast::MemoryForecast& memory, const forecast::Machine& machine,
                            const runtime::Device& device, const config::Told& told,
                            std::span<const forecast::Target> targets = {},
                            std::span<const forecast::OtherPass> passes = {});

/// Explains the generation of one sequence of up to the model's number of positions. Measures the machine.
Explained explain_generation(const weights::ModelSource& source, const precision::Policy& policy,
                             const runtime::Device& device, const config::Told& told,
                             std::span<const forecast::Target> targets = {});

/// Returns the plan as text.
std::string to_text(const Explained& plan);
/// Returns the plan as JSON (docs/cli/explain.md).
std::string to_json(const Explained& plan);

}  // namespace mantissa::explain
