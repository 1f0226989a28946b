// From graph and policy to program: assign formats → place and fold casts → fuse pointwise chains → lay out
// memory.
#pragma once

#include "mantissa/graph/graph.h"
#include "mantissa/kernels/context.h"
#include "mantissa/plan/program.h"
#include "mantissa/precision/policy.h"

namespace mantissa::plan {

struct CompileOptions {
  std::int64_t longest_row = 0;   // tokens of the longest sequence, with what its cache holds
  std::int64_t longest_leaf = 0;  // tokens of the largest leaf of the token sums
  bool fold = true;               // casts and sums done by the kernels that load and store (changes no bit)
  bool fuse = true;               // pointwise chains as one program (changes no bit)
  bool join_head =
      false;  // log-probabilities come with the backward phase, or from `evaluate` (changes no bit)
  bool keep_values = false;  // every value of the graph stays readable after the run (traces)
};

/// Throws ConfigError where the policy asks for what an op cannot do.
Program compile(const graph::Graph& graph, const precision::Policy& policy, const CompileOptions& options,
                const kernels::Context& ctx);

}  // namespace mantissa::plan
