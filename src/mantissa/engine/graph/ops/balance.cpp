// The load-balancing loss of a mixture of experts (Fedus et al., arXiv 2101.03961), which keeps a router from
// sending most tokens to a few experts. It is a mean over the tokens and layers of each row of the batch, so
// that no bit depends on how rows are split into micro-batches.
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/chosen_shapes.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/balance.h"

namespace mantissa::graph {
namespace {

// ---- expert_shares: inputs choice [tokens, chosen] of each layer; output [tokens, experts]. Attribute
// "experts"

std::vector<OutputSpec> infer_shares(const NodeView& n) {
  for (std::size_t i = 1; i < n.inputs.size(); ++i) {
    if (n.shape(i) != n.shape(0))
      throw ShapeError("expert_shares: choices are {} and {}; all layers must have as many", n.shape(0).str(),
                       n.shape(i).str());
  }
  return {{with_last(n.shape(0), n.attributes.integer("experts")), Role::arithmetic}};
}

void run_shares(const Call& c) {
  std::vector<const std::int32_t*> choices;
  for (const Argument& choice : c.inputs) choices.push_back(static_cast<const std::int32_t*>(choice.data));
  kernels::expert_shares(c.ctx, c.extent,
                         {c.outputs[0].width, c.inputs[0].width, choices, c.outputs[0].out()});
}

// ---- balance: inputs share [tokens, experts] and logits [tokens, experts] of each layer; output [tokens].
// Attribute "weight": the factor of its gradient

std::vector<OutputSpec> infer_balance(const NodeView& n) {
  for (std::size_t i = 1; i < n.inputs.size(); ++i) {
    if (n.shape(i) != n.shape(0))
      throw ShapeError("balance: shares are {}, but logits are {}", n.shape(0).str(), n.shape(i).str());
  }
  return {{Shape(std::vector<Dim>{n.shape(0).dim(0)}), Role::arithmetic}};
}

void run_balance(const Call& c) {
  std::vector<ConstMatrix> logits;
  for (const Argument& of : c.inputs.subspan(1)) logits.push_back(of.in());
  kernels::balance(c.ctx, c.outputs[0].rows,
                   {c.inputs[0].width, logits, c.inputs[0].in(), c.outputs[0].out()});
}

void gradient_balance(GradientBuilder& b) {
  const ValueId dy = b.gradient(0);
  const std::size_t layers = b.node().inputs.size() - 1;
  const auto experts = static_cast<double>(b.graph().value(b.input(0)).shape.last());
  const double factor = b.node().attributes.number("weight") * experts / static_cast<double>(layers);
  for (std::size_t i = 1; i <= layers; ++i) {
    if (!b.needed(i)) continue;
    b.contribute(i, b.emit("balance.dlogits", {dy, b.input(0), b.input(i)}, {{"factor", factor}}).front());
  }
}

// Inputs dbalance [tokens], share, logits [tokens, experts]; output dlogits.
std::vector<OutputSpec> infer_dlogits(const NodeView& n) {
  return {{n.shape(2), Role::arithmetic}};
}

void run_dlogits(const Call& c) {
  kernels::BalanceBackward b;
  b.experts = c.inputs[2].width;
  b.factor = c.attributes.number("factor");
  b.dbalance = c.inputs[0].in();
  b.share = c.inputs[1].in();
  b.logits = c.inputs[2].in();
  b.dlogits = c.outputs[0].out();
  kernels::balance_backward(c.ctx, c.inputs[2].rows, b);
}

}  // namespace

const OpDef kExpertShares = {
    .id = "expert_shares",
    .op = "balance",
    .doc = "the share of its row's tokens and layers that chose each expert, rounded once to f32",
    .kind = OpKind::rows,
    .infer = infer_shares,
    .run = run_shares,
};

const OpDef kBalance = {
    .id = "balance",
    .op = "balance",
    .doc = "experts / layers · Σ share·p over experts and layers in f32, p the softmax of a layer's logits",
    .kind = OpKind::rows,
    .per_token = true,
    .infer = infer_balance,
    .gradient = gradient_balance,
    .run = run_balance,
};

const OpDef kBalanceDlogits = {
    .id = "balance.dlogits",
    .op = "balance",
    .doc = "factor·dbalance·p·(share − Σ share·p) in f32, the shares constant, an unrounded contribution",
    .kind = OpKind::rows,
    .per_token = true,
    .infer = infer_dlogits,
    .run = run_dlogits,
};

}  // namespace mantissa::graph
