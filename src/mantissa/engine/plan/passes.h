// The passes of compile(). Each is a function from a program to an equivalent, cheaper one. Only
// assign_formats determines bits.
#pragma once

#include "mantissa/engine/plan/compile.h"

namespace mantissa::plan {

/// Lowers the graph: creates a buffer for every value in the format of the policy, an explicit "cast" step
/// for every change of format, and chains of two-term sums for several contributions.
Program assign_formats(const graph::Graph& graph, const precision::Policy& policy);

/// Lowers an optimizer's graph, which updates the weights of `program`. Its parameters are that program's
/// slots, whose copies its passes write too; its gradients are in that program's memory.
Program assign_update(const graph::Graph& graph, const precision::Policy& policy, const Program& program);

/// Removes the casts and sums that a kernel can include in loading or storing.
void fold_casts(Program& program);

/// Joins the forward and backward steps of the head, so that logits are computed once. The backward phase
/// then computes the log-probabilities; without a backward phase, `evaluate` does.
void join_head(Program& program);

/// Joins consecutive pointwise steps into one expression program.
void fuse_pointwise(Program& program);

/// For steps of one micro-batch: a tied weight's look-up adds its rows directly to the gradient of the head,
/// without a separate accumulator.
void join_uses(Program& program);

/// Repeats steps of the forward phase in the backward phase, so that their results need not be kept.
/// `in_chunks`: steps that treat tokens separately will run in chunks.
void recompute(Program& program, Recompute what, bool in_chunks);

/// Removes splits and joins of columns whose parts can be views of the whole.
void view_columns(Program& program);

/// Holds frozen weights in quantized blocks. Those whose rows do not divide into blocks stay as they are.
/// Throws ConfigError for another weight of a linear layer that cannot be held, and if `wanted` names
/// parameters but none is held.
void hold_quantized(Program& program, const QuantizedSlots& wanted);

/// Lets steps that treat tokens separately run chunk by chunk, so that the buffers between them hold one
/// chunk.
/// Leaves of at most `longest_leaf` tokens fit whole if it is at most `tokens`.
void chunk_tokens(Program& program, std::int64_t tokens, std::int64_t longest_leaf);

/// Computes flops, bytes and workspace of every step.
void estimate_costs(Program& program, const CompileOptions& options, const kernels::Context& ctx);

/// Assigns offsets in the arena by lifetime, and in the weight set.
void lay_out_memory(Program& program, bool keep_values);

// Shared by the passes.

/// Returns true if `id` is read from outside the steps.
bool is_output(const Program& program, BufferId id);

/// Returns the path to the first part that is a number, or "": "model.layers.3.mlp.up_proj" →
/// "model.layers.3".
std::string_view block_of(std::string_view scope);

/// Returns true if `rule`, which matches a parameter's name, affects its update.
bool speaks_of_update(const precision::Rule& rule);

/// Resolves the policy for the update of the parameter called `name`. Throws ConfigError with the name if
/// that gives its moments an unsupported format.
precision::Resolved resolve_update(const precision::Policy& policy, std::string_view name);

/// Adds to `step` the rules that decided the formats of `part`, which it includes: "bf16-mixed+--rule 1".
void add_deciders(Step& step, const Step& part);

}  // namespace mantissa::plan
