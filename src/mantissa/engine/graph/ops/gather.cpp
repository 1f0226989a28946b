// Selection of rows by index: embedding lookup, its gradient, and the rows for which logits are computed.
#include "mantissa/kernels/gather.h"

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {
namespace {

const std::int32_t* ids(const Argument& a) {
  return static_cast<const std::int32_t*>(a.data);
}

/// The id whose row of the table is not trained, as in PyTorch's Embedding; -1: none.
std::int64_t padding_id(const Attributes& attributes) {
  return attributes.integer("padding_id", -1);
}

// Inputs ids [tokens], table [entries, width]; output [tokens, width].
std::vector<OutputSpec> infer_forward(const NodeView& n) {
  if (n.shape(1).rank() != 2) {
    throw ShapeError("gather: table \"{}\" is {}, not [entries, width]", n.graph.value(n.inputs[1]).name,
                     n.shape(1).str());
  }
  std::vector<Dim> dims = n.shape(0).dims();
  dims.push_back({n.shape(1).last(), Axis::fixed});
  return {{Shape(std::move(dims)), Role::residual}};
}

void run_forward(const Call& c) {
  const std::optional<QuantizedMatrix>& quants = c.inputs[1].quants;
  if (quants && quants->transposed) throw InternalError("gather reads rows of quantized blocks, not columns");
  kernels::gather(c.ctx, c.outputs[0].rows, c.outputs[0].width, c.inputs[1].in(), ids(c.inputs[0]),
                  c.outputs[0].out(), quants ? std::optional(quants->format) : std::nullopt);
}

void gradient_forward(GradientBuilder& b) {
  const std::int64_t entries = b.graph().value(b.input(1)).shape.dim(0).size;
  b.contribute(1, b.emit("gather.dtable", {b.input(0), b.gradient(0)},
                         {{"entries", entries}, {"padding_id", padding_id(b.node().attributes)}})
                      .front());
}

// Inputs ids, dy; output dtable.
std::vector<OutputSpec> infer_dtable(const NodeView& n) {
  return {{Shape{n.attributes.integer("entries"), n.shape(1).last()}, Role::weight_gradient, kNone,
           ValueKind::weight_gradient}};
}

std::size_t workspace_dtable(const NodeView& n, const Sizes&, const kernels::Context& ctx) {
  return kernels::gather_workspace(ctx, n.shape(0).count(), n.shape(1).last());
}

void run_dtable(const Call& c) {
  kernels::GatherBackward g;
  g.entries = c.outputs[0].rows;
  g.width = c.outputs[0].width;
  g.ids = ids(c.inputs[0]);
  g.dy = c.inputs[1].in();
  g.dtable = c.outputs[0].out();
  g.accumulate = c.accumulate;
  g.losses = c.losses;
  g.padding_id = padding_id(c.attributes);
  kernels::gather_backward(c.ctx, c.extent, g);
}

// Adds the gradient to that of the table's other uses. Inputs: that gradient, ids, dy; output: the gradient.
std::vector<OutputSpec> infer_add_rows(const NodeView& n) {
  return {{n.shape(0), Role::weight_gradient, n.inputs[0], ValueKind::weight_gradient}};
}

std::size_t workspace_add_rows(const NodeView& n, const Sizes&, const kernels::Context& ctx) {
  return kernels::gather_workspace(ctx, n.shape(1).count(), n.shape(2).last());
}

void run_add_rows(const Call& c) {
  kernels::GatherBackward g;
  g.entries = c.outputs[0].rows;
  g.width = c.outputs[0].width;
  g.ids = ids(c.inputs[1]);
  g.dy = c.inputs[2].in();
  g.dtable = c.outputs[0].out();
  g.apart = true;
  g.losses = c.losses;
  g.padding_id = padding_id(c.attributes);
  kernels::gather_backward(c.ctx, c.extent, g);
}

// Inputs x [tokens, width], index [rows]; output [rows, width], exactly as stored.
std::vector<OutputSpec> infer_select(const NodeView& n) {
  std::vector<Dim> dims = n.shape(1).dims();
  dims.push_back({n.shape(0).last(), Axis::fixed});
  return {{Shape(std::move(dims)), Role::like, n.inputs[0]}};
}

void run_select(const Call& c) {
  kernels::gather(c.ctx, c.outputs[0].rows, c.outputs[0].width, c.inputs[0].in(), ids(c.inputs[1]),
                  c.outputs[0].out());
}

void gradient_select(GradientBuilder& b) {
  const std::int64_t tokens = b.graph().value(b.input(0)).shape.dim(0).size;
  b.contribute(0, b.emit("select.dx", {b.gradient(0), b.input(1)}, {{"tokens", tokens}}).front());
}

// Inputs dy [rows, width], index [rows]; output dx [tokens, width].
std::vector<OutputSpec> infer_select_dx(const NodeView& n) {
  return {{Shape::tokens(n.attributes.integer("tokens"), {n.shape(0).last()}), Role::arithmetic}};
}

void run_select_dx(const Call& c) {
  kernels::scatter_rows(c.ctx, c.inputs[0].rows, c.inputs[0].width, ids(c.inputs[1]), c.inputs[0].in(),
                        c.outputs[0].rows, c.outputs[0].out());
}

}  // namespace

const OpDef kGather = {
    .id = "gather",
    .op = "gather",
    .doc = "rows of the table, read from the masters, rounded to residual",
    .kind = OpKind::lookup,
    .quantized = 1,
    .infer = infer_forward,
    .gradient = gradient_forward,
    .run = run_forward,
};

const OpDef kGatherDtable = {
    .id = "gather.dtable",
    .op = "gather",
    .doc = "rows of dy summed per id, but the padding's, over leaves in f32, unrounded into grads",
    .kind = OpKind::lookup,
    .sums_tokens = true,
    .rounds_gradient = true,
    .infer = infer_dtable,
    .workspace = workspace_dtable,
    .run = run_dtable,
    .adding_variant = "gather.add_rows",
};

const OpDef kGatherAddRows = {
    .id = "gather.add_rows",
    .op = "gather",
    .doc =
        "rows of dy summed per id, but the padding's, over leaves in f32, rounded to grads, added to the "
        "gradient of another use",
    .kind = OpKind::lookup,
    .sums_tokens = true,
    .alias = 0,
    .infer = infer_add_rows,
    .workspace = workspace_add_rows,
    .run = run_add_rows,
};

const OpDef kSelect = {
    .id = "select",
    .op = "select",
    .doc = "selected rows of x, copied",
    .kind = OpKind::lookup,
    .infer = infer_select,
    .gradient = gradient_select,
    .run = run_select,
};

const OpDef kSelectDx = {
    .id = "select.dx",
    .op = "select",
    .doc =
        "rows of dy at the positions from which they were selected, zero elsewhere; unrounded contribution",
    .kind = OpKind::lookup,
    .infer = infer_select_dx,
    .run = run_select_dx,
};

}  // namespace mantissa::graph
