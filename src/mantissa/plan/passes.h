// The passes of compile(), each a function from a program to a better one. None changes a bit of any result
// but assign_formats.
#pragma once

#include "mantissa/plan/compile.h"

namespace mantissa::plan {

/// Lowers the graph: a buffer for every value, whose format the policy decides; every change of format an
/// explicit "cast" step; sums of several contributions as chains of two.
Program assign_formats(const graph::Graph& graph, const precision::Policy& policy);

/// The same of an optimizer's graph, which updates the weights of `program`: its parameters are that
/// program's slots, which its passes write with their copies; its gradients lie where that program has them.
Program assign_update(const graph::Graph& graph, const precision::Policy& policy, const Program& program);

/// Removes the casts and sums that a kernel can do while it loads or stores.
void fold_casts(Program& program);

/// Joins the head's forward and backward steps, so that its logits are made once: the backward phase then
/// makes the log-probabilities, and `evaluate` does where no backward phase follows.
void join_head(Program& program);

/// Joins pointwise steps that follow each other into one expression program.
void fuse_pointwise(Program& program);

/// For steps of one micro-batch: a tied weight's look-up adds its rows to the gradient of the head as they
/// are complete, and needs no accumulator of its own.
void join_uses(Program& program);

/// Runs steps of the forward phase again in the backward phase, so that their results need not be kept.
void recompute(Program& program, Recompute what);

/// Removes splits and joins of columns where the parts can be views of the whole. Reads and writes the same
/// values in place.
void view_columns(Program& program);

/// Flops, bytes and workspace of every step.
void estimate_costs(Program& program, const CompileOptions& options, const kernels::Context& ctx);

/// Offsets in the arena by lifetime, and in the weight set.
void lay_out_memory(Program& program, bool keep_values);

// Shared by the passes.

/// Whether `id` is read by someone outside the steps.
bool is_output(const Program& program, BufferId id);

/// Whether `rule`, which matches a parameter's name, says something of its update.
bool speaks_of_update(const precision::Rule& rule);

/// How the update of the parameter called `name` is resolved. Throws ConfigError, naming it, where its
/// moments could not be kept so.
precision::Resolved resolve_update(const precision::Policy& policy, std::string_view name);

/// Notes in `step` who decided the formats of `part`, which it does too: "bf16-mixed+--rule 1".
void add_deciders(Step& step, const Step& part);

}  // namespace mantissa::plan
