// The head: log-probabilities of given ids, and its gradient, without logits in memory.
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/factor.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/head.h"

namespace mantissa::graph {
namespace {

using kernels::GemmOperand;

const std::int32_t* ids(const Argument& a) {
  return static_cast<const std::int32_t*>(a.data);
}

/// The bound of soft-capped logits; 0: none.
double soft_cap(const Attributes& attributes) {
  return attributes.number("soft_cap", 0.0);
}

/// The share of a token's largest logit in its gradient (kernels/head.h); 0: none.
double l2wrap(const Attributes& attributes) {
  return attributes.number("l2wrap", 0.0);
}

/// The weight of the square of a token's log-sum-exp in its loss (kernels/head.h); 0: none.
double z_loss(const Attributes& attributes) {
  return attributes.number("z_loss", 0.0);
}

/// An f32 holds every entry of a vocabulary up to this size.
constexpr std::int64_t kMostEntries = std::int64_t{1} << 24;

// Inputs x [tokens, channels], W [vocabulary, channels], ids [tokens]; outputs log_prob, lse and optionally
// entropy, or with l2wrap the entry of the largest logit [tokens].
std::vector<OutputSpec> infer_forward(const NodeView& n) {
  if (n.shape(1).rank() != 2 || n.shape(1).last() != n.shape(0).last()) {
    throw ShapeError(
        "log_prob: weight \"{}\" is {}, but its input is {}; the weight must be [vocabulary, {}]",
        n.graph.value(n.inputs[1]).name, n.shape(1).str(), n.shape(0).str(), n.shape(0).last());
  }
  std::vector<OutputSpec> specs = {{n.shape(2), Role::output},
                                   {n.shape(2), Role::arithmetic, kNone, ValueKind::activation, "lse"}};
  if (n.attributes.flag("entropy") && z_loss(n.attributes) != 0)
    throw ShapeError("log_prob: expected for z_loss no entropy, got both. Fix: set train.z_loss = 0");
  if (n.attributes.flag("entropy"))
    specs.push_back({n.shape(2), Role::output, kNone, ValueKind::activation, "entropy"});
  if (l2wrap(n.attributes) == 0) return specs;
  if (n.shape(1).dim(0).size > kMostEntries || n.attributes.flag("entropy"))
    throw ShapeError(
        "log_prob: expected for l2wrap a vocabulary of at most {} entries and no entropy, got {}{}. Fix: set "
        "train.l2wrap = 0",
        kMostEntries, n.shape(1).dim(0).size, n.attributes.flag("entropy") ? " with the entropy" : "");
  specs.push_back({n.shape(2), Role::arithmetic, kNone, ValueKind::activation, "top"});
  return specs;
}

double product_flops(const NodeView& n) {
  return 2.0 * static_cast<double>(n.shape(0).leading()) * static_cast<double>(n.shape(1).count());
}

/// The gradients that a backward node computes: dx, dweight, or both, in this order.
struct Wanted {
  explicit Wanted(const Attributes& a) : dx(!a.flag("frozen_input")), dweight(!a.flag("frozen_weight")) {}
  bool dx, dweight;
  std::size_t count() const { return (dx ? 1U : 0U) + (dweight ? 1U : 0U); }
};

/// The formats of dx and dweight. A gradient that is not computed needs no memory.
struct GradientFormats {
  GradientFormats(const NodeView& n, const Sizes& s) : dx(s.arithmetic), dweight(s.arithmetic) {
    const Wanted wanted(n.attributes);
    if (wanted.dx) dx = s.outputs.at(0);
    if (wanted.dweight) dweight = s.outputs.at(wanted.dx ? 1 : 0);
  }
  Scalar dx, dweight;
};

/// Logits that a soft cap bounds.
double capped_logits(const NodeView& n) {
  if (soft_cap(n.attributes) == 0) return 0;
  return static_cast<double>(n.shape(0).leading()) * static_cast<double>(n.shape(1).dim(0).size);
}

Cost cost_forward(const NodeView& n, const Sizes&) {
  return {product_flops(n), capped_logits(n)};
}
Cost cost_grad(const NodeView& n, const Sizes&) {
  return {static_cast<double>(Wanted(n.attributes).count()) * product_flops(n), capped_logits(n)};
}

std::size_t workspace_forward(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  return kernels::log_prob_workspace(ctx, n.shape(0).leading(), s.longest_leaf, n.shape(0).last(),
                                     n.shape(1).dim(0).size, s.arithmetic, s.parts);
}

std::size_t workspace_grad(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const GradientFormats formats(n, s);
  return kernels::log_prob_backward_workspace(ctx, n.shape(0).leading(), s.longest_leaf, n.shape(0).last(),
                                              n.shape(1).dim(0).size, s.arithmetic, formats.dx,
                                              formats.dweight, s.parts, s.rounds_sums);
}

kernels::LogProb forward_of(const Call& c, const Argument& log_prob, const Argument& lse) {
  kernels::LogProb h;
  h.channels = c.inputs[0].width;
  h.vocabulary = c.inputs[1].rows;
  h.x = GemmOperand{c.inputs[0].in(), c.inputs[0].operand, false};
  h.weight = factor(c.inputs[1], false);
  h.ids = ids(c.inputs[2]);
  h.log_prob = log_prob.out();
  h.lse = lse.out();
  h.accumulator = c.accumulator;
  h.rounded = log_prob.rounded;
  h.softmax = c.interior;
  h.soft_cap = soft_cap(c.attributes);
  return h;
}

void run_forward(const Call& c) {
  kernels::LogProb h = forward_of(c, c.outputs[0], c.outputs[1]);
  if (c.outputs.size() > 2) (l2wrap(c.attributes) == 0 ? h.entropy : h.top) = c.outputs[2].out();
  kernels::log_prob(c.ctx, c.extent, h);
}

void gradient_forward(GradientBuilder& b) {
  std::vector<ValueId> inputs = {b.input(0), b.input(1), b.input(2), b.output(1), b.gradient(0)};
  const double wrap = l2wrap(b.node().attributes);
  if (wrap != 0) {
    inputs.push_back(b.output(2));
  } else if (b.node().outputs.size() > 2 && b.gradient(2) != kNone) {
    inputs.insert(inputs.end(), {b.output(2), b.gradient(2)});
  }
  const std::vector<ValueId> d = b.emit("log_prob.grad", std::move(inputs),
                                        {{"soft_cap", soft_cap(b.node().attributes)},
                                         {"l2wrap", wrap},
                                         {"z_loss", z_loss(b.node().attributes)},
                                         {"frozen_input", !b.needed(0)},
                                         {"frozen_weight", !b.needed(1)}});
  std::size_t next = 0;
  for (const std::size_t i : {0U, 1U}) {
    if (b.needed(i)) b.contribute(i, d[next++]);
  }
}

// Inputs x, W, ids, lse, dlog_prob, optionally entropy and dentropy, or with l2wrap the top; outputs dx and
// dweight as selected.
std::vector<OutputSpec> infer_grad(const NodeView& n) {
  const Wanted wanted(n.attributes);
  std::vector<OutputSpec> specs;
  if (wanted.dx) specs.push_back({n.shape(0), Role::arithmetic, kNone, ValueKind::activation, "x"});
  if (wanted.dweight)
    specs.push_back({n.shape(1), Role::weight_gradient, kNone, ValueKind::weight_gradient, "weight"});
  return specs;
}

kernels::LogProbBackward backward_of(const Call& c, const Argument& lse, const Argument& dlog_prob) {
  const Wanted wanted(c.attributes);
  kernels::LogProbBackward h;
  h.channels = c.inputs[0].width;
  h.vocabulary = c.inputs[1].rows;
  h.x = GemmOperand{c.inputs[0].in(), c.inputs[0].operand, false};
  h.weight = GemmOperand{c.inputs[1].in(), c.inputs[1].operand, false};
  h.ids = ids(c.inputs[2]);
  h.lse = lse.in();
  h.dlog_prob = dlog_prob.in();
  h.operand = c.compute;
  h.accumulator = c.accumulator;
  if (wanted.dx) h.dx = c.outputs[0].out();
  if (wanted.dweight) h.dweight = c.outputs[wanted.dx ? 1 : 0].out();
  h.accumulate = c.accumulate;
  h.losses = c.losses;
  h.rounded = c.outputs[0].rounded;
  h.softmax = c.interior;
  h.soft_cap = soft_cap(c.attributes);
  h.z_loss = z_loss(c.attributes);
  return h;
}

void run_grad(const Call& c) {
  kernels::LogProbBackward h = backward_of(c, c.inputs[3], c.inputs[4]);
  if (l2wrap(c.attributes) != 0) {
    h.l2wrap = l2wrap(c.attributes);
    h.top = c.inputs[5].in();
  } else if (c.inputs.size() > 5) {
    h.entropy = c.inputs[5].in();
    h.dentropy = c.inputs[6].in();
  }
  kernels::log_prob_backward(c.ctx, c.extent, h);
}

// Forward and backward in one op. Inputs x, W, ids, dlog_prob; outputs dx, dweight, log_prob, lse, and with
// l2wrap the top.
std::vector<OutputSpec> infer_training(const NodeView& n) {
  std::vector<OutputSpec> specs = infer_grad(n);
  for (OutputSpec& spec : infer_forward(n)) specs.push_back(std::move(spec));
  return specs;
}

/// Logits of leaves that are too long to be kept are computed twice.
double times_computed(const NodeView& n, const Sizes& s) {
  return kernels::keeps_logits(s.longest_leaf, n.shape(1).dim(0).size) ? 1 : 2;
}

Cost cost_training(const NodeView& n, const Sizes& s) {
  return {static_cast<double>(1 + Wanted(n.attributes).count()) * product_flops(n),
          times_computed(n, s) * capped_logits(n)};
}

double executed_in_training(const NodeView& n, const Sizes& s) {
  return cost_training(n, s).flops + (times_computed(n, s) - 1) * product_flops(n);
}

std::size_t workspace_training(const NodeView& n, const Sizes& s, const kernels::Context& ctx) {
  const GradientFormats formats(n, s);
  return kernels::log_prob_training_workspace(ctx, n.shape(0).leading(), s.longest_leaf, n.shape(0).last(),
                                              n.shape(1).dim(0).size, s.arithmetic, formats.dx,
                                              formats.dweight, s.parts, s.rounds_sums);
}

void run_training(const Call& c) {
  const std::size_t first = Wanted(c.attributes).count();
  kernels::LogProb forward = forward_of(c, c.outputs[first], c.outputs[first + 1]);
  kernels::LogProbBackward backward = backward_of(c, c.outputs[first + 1], c.inputs[3]);
  if (l2wrap(c.attributes) != 0) {
    backward.l2wrap = l2wrap(c.attributes);
    forward.top = c.outputs[first + 2].out();
    backward.top = c.outputs[first + 2].in();
  }
  kernels::log_prob_training(c.ctx, c.extent, forward, backward);
}

}  // namespace

const OpDef kLogProb = {
    .id = "log_prob",
    .op = "log_prob",
    .doc =
        "log-probability of each id under softmax(x·Wᵀ), with optional soft cap of the logits; operands "
        "rounded to compute, logits and softmax f32, chunked",
    .kind = OpKind::head,
    .reads = {Read::matmul, Read::matmul, Read::value},
    .operands = {"input", "weight"},
    .quantized = 1,
    .interior = "softmax",
    .infer = infer_forward,
    .gradient = gradient_forward,
    .cost = cost_forward,
    .workspace = workspace_forward,
    .run = run_forward,
    .joins_gradient = "log_prob.grad",
    .joint = "log_prob.training",
};

const OpDef kLogProbGrad = {
    .id = "log_prob.grad",
    .op = "log_prob",
    .doc =
        "dlogits = d·(onehot − p) − e·p·(log p + entropy), with l2wrap − d·l2wrap·max at the largest logit, "
        "with z_loss − d·2·z_loss·lse·p, "
        "times the soft cap's slope, in f32, rounded to compute as a factor; dx and dW from recomputed logits, chunked",
    .kind = OpKind::head,
    .reads = {Read::matmul, Read::matmul, Read::value},
    .operands = {"input", "weight"},
    .made_factors = "dlogits",
    .rounds_gradient = true,
    .interior = "softmax",
    .infer = infer_grad,
    .cost = cost_grad,
    .workspace = workspace_grad,
    .run = run_grad,
    .executed_flops = [](const NodeView& n,
                         const Sizes& s) { return cost_grad(n, s).flops + product_flops(n); },
};

const OpDef kLogProbTraining = {
    .id = "log_prob.training",
    .op = "log_prob",
    .doc =
        "log_prob and log_prob.grad of the same rows: logits are computed once and kept, a few leaves at a "
        "time",
    .kind = OpKind::head,
    .reads = {Read::matmul, Read::matmul, Read::value},
    .operands = {"input", "weight"},
    .made_factors = "dlogits",
    .rounds_gradient = true,
    .interior = "softmax",
    .infer = infer_training,
    .cost = cost_training,
    .workspace = workspace_training,
    .run = run_training,
    .executed_flops = executed_in_training,
};

}  // namespace mantissa::graph
