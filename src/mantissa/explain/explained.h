// What a run or a generation will do, before it does it: one value, printed as text for people and as JSON
// for programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/config/run_config.h"
#include "mantissa/cost/forecast.h"
#include "mantissa/cost/target.h"
#include "mantissa/kernels/processor.h"
#include "mantissa/model/config.h"
#include "mantissa/plan/explain.h"
#include "mantissa/runtime/device.h"

namespace mantissa::explain {

/// This machine, and how it computes each format that the plan needs.
struct Here {
  std::string simd;
  int threads = 0;
  std::size_t memory_bytes = 0;
  cost::Machine rates;
  std::vector<std::pair<std::string, kernels::FormatSupport>> formats;  // by name
};

/// The plan on another machine, by its stated rates.
struct There {
  cost::Target target;
  std::vector<cost::TargetFormat> needed;  // the formats of the plan, as the machine has them
  std::vector<cost::TargetFormat> others;  // the other formats that tables of targets have
  std::size_t peak_bytes = 0;
  std::size_t usable_bytes = 0;
  double seconds = 0;  // of a step or a token; 0 where the machine lacks a format
  bool fits = false;
  std::vector<std::string> warnings;
  // Of training:
  std::int64_t largest_micro_batch_size = 0;  // 0 where not even one leaf of sequences fits
  std::int64_t sequences_that_fit = 0;        // at once, whatever the batch is
  std::size_t least_bytes = 0;                // of a run with one leaf at once, where that does not fit
};

/// The part of a plan that only training has.
struct Training {
  config::RunConfig config;
  std::int64_t shards = 1;
  Scalar reduce = Scalar::f32;
  std::vector<std::pair<std::string, double>>
      casts;  // scope and bytes of the steps that only change a format
  plan::CastsLeft casts_left;
  cost::MemoryForecast memory;
  std::int64_t largest_micro_batch_size = 0;  // 0 where not even one leaf of sequences fits
  std::size_t least_bytes = 0;                // of a run with one leaf at once, where that does not fit
  std::vector<std::string> exceptions;        // why bits depend on the split into micro-batches
};

/// The part of a plan that only generation has. Bytes.
struct Generation {
  std::int64_t positions = 0;
  std::size_t weights = 0, cache = 0, work = 0;
};

/// Exactly one of `training` and `generation` is there.
struct Explained {
  std::string preset, line, loss_scale;  // of the policy
  std::string model_type;
  double parameters = 0;
  std::vector<plan::PlanRow> rows;
  Here here;
  std::vector<There> targets;
  std::size_t peak_bytes = 0;
  double seconds = 0;  // of a step, or of a token
  bool fits = false;   // this machine
  std::vector<std::string> warnings, notes;
  std::string refusal;  // why the run would refuse the rules; "" where it would not
  std::optional<Training> training;
  std::optional<Generation> generation;
};

/// Compiles the run that `config` describes, and explains the plan of its first step. `data_bytes`: what the
/// data take that are not in memory yet. Measures the machine. Throws ConfigError where precision.native_only
/// is true and this machine, or one of `targets`, lacks a format.
Explained explain_training(const config::RunConfig& config, const model::ModelConfig& model,
                           const runtime::Device& device, const config::Told& told,
                           std::span<const cost::Target> targets = {}, std::size_t data_bytes = 0);

/// Explains `program`, which a run executes with `memory` on `machine`.
Explained describe_training(const config::RunConfig& config, const model::ModelConfig& model,
                            const plan::Program& program, const cost::MemoryForecast& memory,
                            const cost::Machine& machine, const runtime::Device& device,
                            const config::Told& told, std::span<const cost::Target> targets = {});

/// The plan of generating one sequence of up to the model's number of positions. Measures the machine.
Explained explain_generation(const model::ModelConfig& model, const precision::Policy& policy,
                             const runtime::Device& device, const config::Told& told,
                             std::span<const cost::Target> targets = {});

/// The plan as people read it.
std::string to_text(const Explained& plan);
/// The plan as programs read it (docs/cli.md, "explain --json").
std::string to_json(const Explained& plan);

}  // namespace mantissa::explain
