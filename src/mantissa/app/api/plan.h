// The plan of a run or a generation, without running it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/app/api/config.h"
#include "mantissa/app/api/data.h"
#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/precision.h"

namespace mantissa::api {

/// One op of a plan, with the formats of its use and the rule that decided them.
struct PlanOp {
  std::string scope, op, pass;                          // "model.layers.0.mlp.up_proj", "matmul", "forward"
  std::string stored, multiplied, accumulated, output;  // formats, or "–" if not applicable
  std::string decided_by, kernel;     // the rule, "bf16-mixed"; the op's id, and the ops folded into it
  double flops = 0, bytes = 0;        // for one micro-batch
  std::string rounded = {};           // rounding of the result before the op adds it to a sum, or ""
  std::string accumulate_order = {};  // of the sums of products: "tile", "chain", "card", or ""
};

/// A run on another machine, by the machine's stated rates.
struct TargetPlan {
  std::string name;
  double seconds_per_step = 0;  // for a model's plan: per token; 0 if the machine lacks a format
  std::size_t predicted_peak_bytes = 0;
  std::int64_t largest_micro_batch_size = 0;  // of the config's batch; 0 if not even one sequence fits
  std::int64_t sequences_that_fit = 0;        // at once, for any batch; of the stage of which fewest fit
  std::vector<std::string> warnings;          // missing formats
  bool fits = false;                          // all stages of a run; the plan of a model
  double seconds_total = 0;                   // of all steps of a run; 0 if the machine lacks a format
};

/// The plan of a run or a generation.
struct Plan {
  std::string policy;  // name: line
  std::vector<PlanOp> ops;
  std::size_t predicted_peak_bytes = 0;
  double seconds_per_step = 0;  // for a model's plan: per token; meaningless if the plan does not fit
  // of the config's batch, on this machine; 0 if not even one sequence fits
  std::int64_t largest_micro_batch_size = 0;
  std::vector<TargetPlan> targets;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // how the config was read
  std::string refusal;             // why train() rejects the rules, or ""
  std::string text;                // for people
  std::string json;                // for programs (docs/cli/explain.md)
};

/// The ranks that would share a run, and the file in which `mantissa doctor --json` under mpirun described
/// their network; "": not known.
struct PlanRanks {
  int ranks = 1, nodes = 1;
  std::filesystem::path network = {};
  int here = 1;  // processes of this machine that share its cores
};

/// Returns the plan of the config's run. `targets` are other machines, by name or FILE.toml
/// (docs/cli/explain.md, "Targets"). `data` replaces the config's source, as in train(). Throws ConfigError,
/// FileError.
Plan explain(const Config& config, const Hardware& hardware = {},
             const std::vector<std::string>& targets = {}, const Data& data = {},
             const PlanRanks& ranks = {});
/// Returns the plan of generation from a model or, if `precision` has a DeepSpeed file, of training it.
/// Throws ConfigError, FileError.
Plan explain_model(const std::filesystem::path& model, const Precision& precision,
                   const Hardware& hardware = {}, const std::vector<std::string>& targets = {});

/// Returns the names of the built-in machines.
std::vector<std::string> known_targets();

}  // namespace mantissa::api
