// Rotary position embedding of queries and keys.
#include "mantissa/kernels/rope.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {
namespace {

// Inputs q [tokens, heads·d], k [tokens, kv_heads·d], cos and sin [positions, r/2]; outputs q and k with the
// first r of the d values of each head rotated: in pairs (i, i + r/2), or (2i, 2i + 1) with "neighbours".
std::int64_t rotated(const Shape& cos) {
  return 2 * cos.last();
}

std::vector<OutputSpec> infer(const NodeView& n, Role role) {
  const std::int64_t head_dim = n.attributes.integer("head_dim");
  if (rotated(n.shape(2)) > head_dim) {
    throw ShapeError("rope: the tables rotate {} values of a head, which has only {}", rotated(n.shape(2)),
                     head_dim);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    if (head_dim % 2 != 0 || n.shape(i).last() % head_dim != 0) {
      throw ShapeError("rope: {} values per token are not whole heads of an even size {}", n.shape(i).last(),
                       head_dim);
    }
  }
  return {{n.shape(0), role, kNone, ValueKind::activation, "q"},
          {n.shape(1), role, kNone, ValueKind::activation, "k"}};
}

std::vector<OutputSpec> infer_forward(const NodeView& n) {
  return infer(n, Role::compute);
}
std::vector<OutputSpec> infer_grad(const NodeView& n) {
  return infer(n, Role::arithmetic);
}

Cost cost(const NodeView& n, const Sizes&) {
  const auto values = static_cast<double>(n.shape(0).count() + n.shape(1).count());
  return {3.0 * values * static_cast<double>(rotated(n.shape(2))) /
          static_cast<double>(n.attributes.integer("head_dim"))};
}

void run(const Call& c, bool inverse) {
  for (std::size_t i = 0; i < 2; ++i) {
    kernels::Rope r;
    r.head_dim = c.attributes.integer("head_dim");
    r.heads = c.inputs[i].width / r.head_dim;
    r.inverse = inverse;
    r.x = c.inputs[i].in();
    r.cos = c.inputs[2].in();
    r.sin = c.inputs[3].in();
    r.y = c.outputs[i].out();
    r.rotated = 2 * c.inputs[2].width;
    if (c.attributes.flag("neighbours")) r.pairs = kernels::RopePairs::neighbours;
    kernels::rope(c.ctx, c.extent, r);
  }
}

void run_forward(const Call& c) {
  run(c, false);
}
void run_grad(const Call& c) {
  run(c, true);
}

void gradient_forward(GradientBuilder& b) {
  const std::vector<ValueId> d =
      b.emit("rope.grad", {b.gradient(0), b.gradient(1), b.input(2), b.input(3)}, b.node().attributes);
  b.contribute(0, d[0]);
  b.contribute(1, d[1]);
}

}  // namespace

const OpDef kRope = {
    .id = "rope",
    .op = "rope",
    .doc = "q, k rotated by their positions in f32, rounded once",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b11, .outputs = 0b11},
    .interior = "angles",
    .infer = infer_forward,
    .gradient = gradient_forward,
    .cost = cost,
    .run = run_forward,
};

const OpDef kRopeGrad = {
    .id = "rope.grad",
    .op = "rope",
    .doc = "dq, dk rotated back in f32, unrounded contributions",
    .kind = OpKind::rows,
    .strided = {.inputs = 0b11, .outputs = 0b11},
    .interior = "angles",
    .infer = infer_grad,
    .cost = cost,
    .run = run_grad,
};

}  // namespace mantissa::graph
