// The programs of a training run: its steps and the forward passes beside them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/engine/plan/sharing.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/programs/update.h"

namespace mantissa::programs {

/// Returns the tokens of micro-batches of `items` items.
std::int64_t tokens_of(const config::RunConfig& config, std::int64_t items);

/// Returns the training program of `config`, with its update, for micro-batches of `rows` sequences, packs or
/// pairs under the policy of step `step`, counted from 0.
plan::Program compile_training(const config::RunConfig& config, const model::ModelConfig& model,
                               std::int64_t rows, const runtime::Device& device, bool fold = true,
                               bool fuse = true, std::int64_t step = 0);

/// Returns the program of a forward pass over micro-batches of `config`, without gradients, under the policy
/// of step `step`, counted from 0. Its log-probabilities have the bits of the training program's. `model` is
/// that of the run, or the base of its adapter. `value`: with a value head.
plan::Program compile_log_probs(const config::RunConfig& config, const model::ModelConfig& model,
                                const runtime::Device& device, std::int64_t step = 0, bool value = false);

/// One of the ranks that share a run.
struct RankOf {
  int rank = 0, ranks = 1;
  int parts = 1;  // neighbouring ranks that share rows (distributed.sequence_shards)
};

/// A range of steps with the same rules, within a stage of the run.
struct RunPart {
  std::int64_t first = 0;  // its first step, counted from 0
  std::size_t stage = 0;   // setup/config/stages.h
  std::shared_ptr<const plan::Program> program;
  std::vector<optim::Number> numbers;  // that its update reads
  std::string observed;                // log.observe
  RankOf rank = {};
  plan::Sharing sharing = {};  // of the weights, if ranks divide them
  /// The program of one process that does the work of all ranks. The same if no weights are divided.
  std::shared_ptr<const plan::Program> whole = {};
};

/// Compiles the parts of a run for one of its ranks. The owners of its parameters are the same in all parts.
/// If ranks share rows, one process is taken for the first of as many ranks.
std::vector<RunPart> compile_parts(const config::RunConfig& config, const model::ModelConfig& model,
                                   const runtime::Device& device, RankOf rank = {});

/// Returns the bytes of the largest arena of the parts.
std::size_t largest_arena(std::span<const RunPart> parts);

/// Returns the training program of `config` under a policy, with its update, to check the rules against.
plan::Lower lower_run(const config::RunConfig& config, const model::ModelConfig& model);

}  // namespace mantissa::programs
