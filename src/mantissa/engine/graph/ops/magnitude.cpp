// DoRA (Liu et al., arXiv 2402.09353): the result of an adapted layer with trained magnitudes of the weight's
// rows, y = m / n · z + b, n = ‖W + s·B·A‖ by rows, z = x·(W + s·B·A)ᵀ. The norms are constants of the
// gradient, as section 4.3 of the paper proposes.
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/pointwise.h"
#include "mantissa/kernels/row_norms.h"

namespace mantissa::graph {
namespace {

// ---- row_norms: inputs W [out, in] ([in, out] with "transposed"), A [rank, in], B [out, rank]; output [out]

bool is_transposed(const Attributes& a) {
  return a.flag("transposed");
}

std::vector<OutputSpec> infer_norms(const NodeView& n) {
  const bool transposed = is_transposed(n.attributes);
  const std::int64_t out = n.shape(0).dim(transposed ? 1 : 0).size,
                     in = n.shape(0).dim(transposed ? 0 : 1).size, rank = n.shape(1).dim(0).size;
  if (n.shape(1) != Shape{rank, in} || n.shape(2) != Shape{out, rank}) {
    throw ShapeError(
        "row_norms: \"{}\" is {} and \"{}\" is {}, but the weight \"{}\" has {} inputs and {} outputs",
        n.graph.value(n.inputs[1]).name, n.shape(1).str(), n.graph.value(n.inputs[2]).name, n.shape(2).str(),
        n.graph.value(n.inputs[0]).name, in, out);
  }
  return {{Shape{out}, Role::arithmetic, kNone, ValueKind::activation, "norm"}};
}

Cost cost_norms(const NodeView& n, const Sizes&) {
  return {2.0 * static_cast<double>(n.shape(0).count()) * static_cast<double>(n.shape(1).dim(0).size + 1)};
}

void run_norms(const Call& c) {
  const bool transposed = is_transposed(c.attributes);
  kernels::RowNorms n;
  n.out = c.outputs[0].width;
  n.in = transposed ? c.inputs[0].rows : c.inputs[0].width;
  n.rank = c.inputs[1].rows;
  n.scale = c.attributes.number("scale");
  n.transposed = transposed;
  n.weight = c.inputs[0].in();
  n.quants = c.inputs[0].quants;
  n.a = c.inputs[1].in();
  n.b = c.inputs[2].in();
  n.norms = c.outputs[0].out();
  kernels::row_norms(c.ctx, n);
}

// ---- magnitude: inputs z [tokens, out], m [out], n [out], optionally b [out]

void check_vectors(const NodeView& n, std::size_t first) {
  for (std::size_t i = first; i < n.inputs.size(); ++i) {
    if (n.shape(i) == Shape{n.shape(0).last()}) continue;
    throw ShapeError("magnitude: \"{}\" is {}, but must be [{}]", n.graph.value(n.inputs[i]).name,
                     n.shape(i).str(), n.shape(0).last());
  }
}

OpDef magnitude_op() {
  OpDef op = expression_op("magnitude", "magnitude", "m/n·z + b in f32, rounded once");
  op.infer = [](const NodeView& n) {
    check_vectors(n, 1);
    return std::vector<OutputSpec>{{n.shape(0), Role::compute}};
  };
  op.gradient = [](GradientBuilder& b) {
    const ValueId dy = b.gradient(0);
    if (b.needed(0)) b.contribute(0, b.emit("magnitude.dz", {dy, b.input(1), b.input(2)}).front());
    if (b.needed(1)) {
      const ValueId terms = b.emit("magnitude.dm", {dy, b.input(0), b.input(2)}).front();
      b.contribute(1, b.emit("token_sum", {terms}).front());
    }
    if (b.node().inputs.size() > 3 && b.needed(3)) b.contribute(3, b.emit("token_sum", {dy}).front());
  };
  op.expression = [](const NodeView& n) {
    ExpressionBuilder b;
    const Registers in = load_inputs(b, n);
    const Register scaled = b.mul(b.div(in[1], in[2]), in[0]);
    return stored(b, {n.inputs.size() > 3 ? b.add(scaled, in[3]) : scaled});
  };
  return op;
}

OpDef magnitude_dz_op() {
  OpDef op = expression_op("magnitude.dz", "magnitude", "m/n·dy in f32, an unrounded contribution");
  op.infer = [](const NodeView& n) {
    check_vectors(n, 1);
    return std::vector<OutputSpec>{{n.shape(0), Role::arithmetic}};
  };
  op.expression = [](const NodeView& n) {
    ExpressionBuilder b;
    const Registers in = load_inputs(b, n);
    return stored(b, {b.mul(b.div(in[1], in[2]), in[0])});
  };
  return op;
}

OpDef magnitude_dm_op() {
  OpDef op = expression_op("magnitude.dm", "magnitude", "dy·z/n in f32, whose sum over tokens is dm");
  op.infer = [](const NodeView& n) {
    check_vectors(n, 2);
    return std::vector<OutputSpec>{{n.shape(0), Role::arithmetic}};
  };
  op.expression = [](const NodeView& n) {
    ExpressionBuilder b;
    const Registers in = load_inputs(b, n);
    return stored(b, {b.div(b.mul(in[0], in[1]), in[2])});
  };
  return op;
}

}  // namespace

const OpDef kRowNorms = {
    .id = "row_norms",
    .op = "row_norms",
    .doc = "‖W + s·B·A‖ by rows in f32, constants of the gradient",
    .kind = OpKind::rows,
    .quantized = 0,
    .infer = infer_norms,
    .cost = cost_norms,
    .run = run_norms,
};
const OpDef kMagnitude = magnitude_op();
const OpDef kMagnitudeDz = magnitude_dz_op();
const OpDef kMagnitudeDm = magnitude_dm_op();

}  // namespace mantissa::graph
