// Stores a factor of a product with scales. The plan inserts it before Linear ops with an 8- or 4-bit compute
// format. Reports and rules call the op "quantize".
#include "mantissa/kernels/hadamard.h"
#include "mantissa/kernels/round.h"
#include "mantissa/kernels/scaled.h"

#include "mantissa/engine/graph/ops/elements.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {
namespace {

/// Attributes: "blocks" (a BlockFormat, or −1), "along_rows" (blocks over tokens, from the start of each
/// row), "scale_rounding" (a ScaleRounding), "length" (elements that share a scale, or 0), "hadamard",
/// "current", "margin".
void run(const Call& c) {
  const Argument& in = c.inputs[0];
  const Argument& out = c.outputs[0];
  const bool transformed = c.attributes.flag("hadamard");
  const std::uint16_t signs = kernels::hadamard_signs(c.extent.seed);
  if (c.repeated && c.attributes.integer("blocks") >= 0) {
    // The values before their roundings, also that of a transform, under the tensor's scale.
    const float factor = out.scale == nullptr ? 1 : 1 / out.scale->scale;
    if (transformed)
      return kernels::hadamard(c.ctx, in.rows, in.width, in.in(), out.out(), signs, Scalar::f32,
                               c.extent.rows, factor);
    return kernels::round_tensor(c.ctx, in.rows * in.width, in.data, in.type, out.data, out.type, true, false,
                                 factor);
  }
  kernels::StoreScaled how;
  if (c.attributes.integer("blocks") >= 0)
    how.blocks = static_cast<BlockFormat>(c.attributes.integer("blocks"));
  how.along_rows = c.attributes.flag("along_rows");
  how.packed = out.blocks.has_value();
  how.current = c.attributes.flag("current") && !c.repeated;
  how.margin = static_cast<int>(c.attributes.integer("margin"));
  how.rounding.scaling = {static_cast<ScaleRounding>(c.attributes.integer("scale_rounding")),
                          static_cast<std::int32_t>(c.attributes.integer("length"))};
  if (c.rounding == Rounding::stochastic && !c.repeated) how.rounding.stochastic = &c.extent;
  how.rounding.name = c.random_name;
  if (transformed) how.rounding.hadamard = signs;
  // Rows of one token, as of its experts, round by its bits. Blocks leave rows apart, and experts have none.
  const TokenRows rows =
      how.rounding.stochastic != nullptr ? token_rows(c.extent, in) : TokenRows{in.rows, in.width};
  kernels::store_scaled(c.ctx, rows.count, rows.width, {in.data, in.type, rows.width},
                        {out.data, out.type, rows.width}, how, out.scale, c.extent.rows);
}

}  // namespace

const OpDef kStoreScaled = {
    .id = "quantize",
    .op = "quantize",
    .doc = "rounded with the scale of the tensor, or of blocks",
    .kind = OpKind::move,
    .per_token = true,
    .infer = infer_rounded,
    .cost = cost_of_elements,
    .run = run,
};

}  // namespace mantissa::graph
