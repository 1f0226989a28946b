// What a run or a generation will do, before it does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "mantissa/api/config.h"
#include "mantissa/api/data.h"
#include "mantissa/api/hardware.h"
#include "mantissa/api/precision.h"

namespace mantissa::api {

/// One op of a plan, with the formats of its use and the rule that decided them.
struct PlanOp {
  std::string scope, op, pass;                          // "model.layers.0.mlp.up_proj", "matmul", "forward"
  std::string stored, multiplied, accumulated, output;  // formats; "–" where there is none of the kind
  std::string decided_by, kernel;  // the rule, "bf16-mixed"; the op's id and what is folded in
  double flops = 0, bytes = 0;     // of one micro-batch
  std::string rounded = {};  // what the result is rounded to before the op adds it to a sum; "" elsewhere
};

/// A run on another machine, by the machine's stated rates.
struct TargetPlan {
  std::string name;
  double seconds_per_step = 0;  // of a model's plan: per token; 0 where the machine lacks a format
  std::size_t predicted_peak_bytes = 0;
  std::int64_t largest_micro_batch_size = 0;  // of the config's batch; 0 where not one sequence fits
  std::int64_t sequences_that_fit = 0;        // at once, whatever the batch is
  std::vector<std::string> warnings;          // formats that it lacks
};

/// What a run or a generation will do, before it does it.
struct Plan {
  std::string policy;  // name: line
  std::vector<PlanOp> ops;
  std::size_t predicted_peak_bytes = 0;
  double seconds_per_step = 0;  // of a model's plan: per token; meaningless where the plan does not fit
  std::int64_t largest_micro_batch_size =
      0;  // of the config's batch, on this machine; 0 where not one sequence fits
  std::vector<TargetPlan> targets;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // how the config was read
  std::string refusal;             // why train() would refuse the rules; "" where it would not
  std::string text;                // for people
  std::string json;                // for programs (docs/cli.md, "explain --json")
};

/// Returns the plan of the run that `config` describes. `targets`: other machines, by name or a FILE.toml
/// (docs/cli.md, "Targets"). `data`: in place of the config's source, as train() takes them. Throws
/// ConfigError, FileError.
Plan explain(const Config& config, const Hardware& hardware = {}, std::span<const std::string> targets = {},
             const Data& data = {});
/// Returns the plan of generating from a model; of training it where `precision` has a DeepSpeed file. Throws
/// ConfigError, FileError.
Plan explain_model(const std::filesystem::path& model, const Precision& precision,
                   const Hardware& hardware = {}, std::span<const std::string> targets = {});

}  // namespace mantissa::api
