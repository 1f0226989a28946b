// From graph and policy to program: assign formats → place and fold casts → fuse pointwise chains → lay out
// memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "mantissa/graph/graph.h"
#include "mantissa/kernels/context.h"
#include "mantissa/plan/program.h"
#include "mantissa/precision/policy.h"

namespace mantissa::plan {

/// Which activations are made again in the backward phase instead of being kept. Changes no bit.
enum class Recompute : std::uint8_t {
  none,
  attention,  // what the attention modules make; their inputs and what they add to the residual stream are
              // kept
  block,      // what blocks make; the residual stream between them is kept, and the last block whole
};
/// Reads "none", "attention" or "block"; throws ConfigError for others.
Recompute parse_recompute(std::string_view name);

struct CompileOptions {
  std::int64_t longest_row = 0;   // tokens of the longest sequence, with what its cache holds
  std::int64_t longest_leaf = 0;  // tokens of the largest leaf of the token sums
  bool fold = true;               // casts and sums done by the kernels that load and store (changes no bit)
  bool fuse = true;               // pointwise chains as one program (changes no bit)
  bool views = true;              // splits and joins of columns without copies (changes no bit)
  bool join_head =
      false;  // log-probabilities come with the backward phase, or from `evaluate` (changes no bit)
  Recompute recompute = Recompute::none;
  bool one_micro_batch =
      false;                 // of which a step consists: nothing is accumulated over runs (changes no bit)
  std::int64_t shards = 1;   // of a step's batch, whose gradients are summed in the policy's `reduce` format
  bool keep_values = false;  // every value of the graph stays readable after the run (traces)
  /// Of an update's graph: the program whose weights it changes. It has that program's slots, and reads its
  /// gradients where they lie.
  const Program* updates = nullptr;
};

/// Throws ConfigError where the policy asks for what an op cannot do.
Program compile(const graph::Graph& graph, const precision::Policy& policy, const CompileOptions& options,
                const kernels::Context& ctx);

}  // namespace mantissa::plan
