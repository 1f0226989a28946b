// From graph and policy to program: assign formats → place and fold casts → fuse pointwise chains → lay out
// memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "mantissa/engine/graph/graph.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/kernels/context.h"
#include "mantissa/precision/policy/policy.h"

namespace mantissa::plan {

/// Activations to recompute in the backward phase instead of keeping them. Changes no bit.
enum class Recompute : std::uint8_t {
  none,
  attention,  // results inside attention modules; their inputs and contributions to the residual stream are
              // kept
  block,  // results inside blocks; the residual stream between blocks is kept, and the last block, if steps
          // run in chunks only up to its attention
};
/// Parses "none", "attention" or "block". Throws ConfigError for other names.
Recompute parse_recompute(std::string_view name);

/// Returns the format in which a frozen parameter is held, or null for the policy's formats.
using QuantizedSlots = std::function<std::optional<QuantFormat>(std::string_view)>;

struct CompileOptions {
  std::int64_t longest_row = 0;     // tokens of the longest sequence, including cached positions
  std::int64_t longest_leaf = 0;    // tokens of the largest leaf of the token sums
  std::int64_t sequence_parts = 1;  // ranks that share a row; `longest_row` counts the tokens of one of them
  bool fold = true;                 // let kernels that load and store include casts and sums (changes no bit)
  bool fuse = true;                 // fuse pointwise chains to one program (changes no bit)
  bool views = true;                // splits and joins of columns without copies (changes no bit)
  bool join_head =
      false;  // compute log-probabilities in the backward phase, or in `evaluate` (changes no bit)
  Recompute recompute = Recompute::none;
  // a step is one micro-batch, so nothing accumulates over runs (changes no bit)
  bool one_micro_batch = false;
  // shards of a step's batch, whose gradients are summed in the policy's `reduce` format
  std::int64_t shards = 1;
  /// Frozen weights of linear layers that are held in quantized blocks. Others that it names are not.
  QuantizedSlots quantized = {};
  /// Steps that treat tokens separately run for this many tokens at a time if this saves memory: a
  /// multiple of kSumBlock, or 0 (changes no bit).
  std::int64_t chunk_tokens = 0;
  bool keep_values = false;  // keep every value of the graph readable after the run (for traces)
  /// For an update's graph: the program whose weights it updates. The update has that program's slots, and
  /// reads the gradients in its memory.
  const Program* updates = nullptr;
};

/// Throws ConfigError if an op does not support the policy, or a weight its quantized format.
Program compile(const graph::Graph& graph, const precision::Policy& policy, const CompileOptions& options,
                const kernels::Context& ctx);

}  // namespace mantissa::plan
