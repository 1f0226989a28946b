// A change of format that saturates, flushes subnormals, or rounds other than to nearest, as a policy may
// require. It is a separate step that no kernel includes.
#include "mantissa/kernels/round.h"
#include "mantissa/engine/graph/ops/elements.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {
namespace {

void run(const Call& c) {
  const Argument& in = c.inputs[0];
  const Argument& out = c.outputs[0];
  if (c.rounding != Rounding::nearest) {
    const TokenRows rows = token_rows(c.extent, in);
    return kernels::round_activations(
        c.ctx, c.extent, rows.count, rows.width, in.in(), out.out(),
        {c.rounding, c.random_name, c.compute.saturate, c.compute.flush_subnormals});
  }
  kernels::round_tensor(c.ctx, in.rows * in.width, in.data, in.type, out.data, out.type, c.compute.saturate,
                        c.compute.flush_subnormals);
}

}  // namespace

const OpDef kRound = {
    .id = "round",
    .op = "cast",
    .doc =
        "rounded once, stochastically or toward zero; overflow to the largest finite value, subnormals to "
        "zero, as given by the policy",
    .duty = Duty::rounding,
    .per_token = true,
    .infer = infer_rounded,
    .cost = cost_of_elements,
    .run = run,
};

}  // namespace mantissa::graph
