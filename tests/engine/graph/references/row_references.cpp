#include <cmath>

#include "engine/graph/references/references.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/layernorm.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/row_norms.h"
#include "kernels/reference/token_sum.h"

namespace mantissa::graph::testing {
namespace {

double gain_offset(const Attributes& attributes) {
  return attributes.number("gain_offset", 0.0);
}

/// Returns the number of normalized rows: tokens, or tokens · heads.
std::int64_t rows_of(const ReferenceOperand& rstd) {
  return static_cast<std::int64_t>(rstd.values.size());
}

void rmsnorm(const ReferenceCall& c) {
  kernels::reference::rmsnorm(rows_of(c.outputs[1]), c.inputs[1].width, c.attributes.number("eps"),
                              c.inputs[0].data(), c.inputs[1].data(), c.outputs[0].data(),
                              c.outputs[1].data(), gain_offset(c.attributes));
}

void rmsnorm_dx(const ReferenceCall& c) {
  kernels::reference::rmsnorm_backward(rows_of(c.inputs[2]), c.inputs[1].width, c.inputs[0].data(),
                                       c.inputs[1].data(), c.inputs[2].data(), c.inputs[3].data(),
                                       c.outputs[0].data(), gain_offset(c.attributes));
}

void rmsnorm_dgain(const ReferenceCall& c) {
  kernels::reference::rmsnorm_gain(rows_of(c.inputs[1]), c.outputs[0].width, c.inputs[0].data(),
                                   c.inputs[1].data(), c.inputs[2].data(), c.outputs[0].data());
}

void layernorm(const ReferenceCall& c) {
  kernels::reference::layernorm(c.inputs[0].rows, c.inputs[0].width, c.attributes.number("eps"),
                                c.inputs[0].data(), c.inputs[1].data(),
                                c.inputs.size() > 2 ? c.inputs[2].data() : nullptr, c.outputs[0].data(),
                                c.outputs[1].data(), c.outputs[2].data());
}

void layernorm_dx(const ReferenceCall& c) {
  kernels::reference::layernorm_backward(c.inputs[0].rows, c.inputs[0].width, c.inputs[0].data(),
                                         c.inputs[1].data(), c.inputs[2].data(), c.inputs[3].data(),
                                         c.inputs[4].data(), c.outputs[0].data());
}

void layernorm_dgain(const ReferenceCall& c) {
  kernels::reference::layernorm_gain(c.inputs[0].rows, c.inputs[0].width, c.inputs[0].data(),
                                     c.inputs[1].data(), c.inputs[2].data(), c.inputs[3].data(),
                                     c.outputs[0].data());
}

void row_norms(const ReferenceCall& c) {
  const bool transposed = c.attributes.flag("transposed");
  const std::int64_t in = transposed ? c.inputs[0].rows : c.inputs[0].width;
  kernels::reference::row_norms(c.outputs[0].width, in, c.inputs[1].rows, c.attributes.number("scale"),
                                transposed, c.inputs[0].data(), c.inputs[1].data(), c.inputs[2].data(),
                                c.outputs[0].data());
}

void token_sum(const ReferenceCall& c) {
  kernels::reference::token_sum(c.inputs[0].rows, c.inputs[0].width, c.inputs[0].data(), c.outputs[0].data());
}

kernels::AttentionShape shape_of(const Attributes& a) {
  kernels::AttentionShape s;
  s.heads = a.integer("heads");
  s.kv_heads = a.integer("kv_heads");
  s.head_dim = a.integer("head_dim");
  s.scale = a.number("scale", 1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  s.window = a.integer("window", 0);
  s.soft_cap = a.number("soft_cap", 0);
  return s;
}

void attention(const ReferenceCall& c) {
  const kernels::KeyCache cache{c.attributes.integer("slots", 0), c.attributes.integer("capacity", 0)};
  kernels::reference::attention(c.extent, shape_of(c.attributes), c.inputs[0].data(), c.inputs[1].data(),
                                c.inputs[2].data(), c.outputs[0].data(), c.outputs[1].data(), cache);
}

void attention_grad(const ReferenceCall& c) {
  kernels::reference::attention_backward(c.extent, shape_of(c.attributes), c.inputs[0].data(),
                                         c.inputs[1].data(), c.inputs[2].data(), c.inputs[3].data(),
                                         c.inputs[4].data(), c.inputs[5].data(), c.outputs[0].data(),
                                         c.outputs[1].data(), c.outputs[2].data());
}

}  // namespace

std::span<const NamedReference> row_references() {
  static constexpr NamedReference kAll[] = {
      {"rmsnorm", rmsnorm},
      {"rmsnorm.dx", rmsnorm_dx},
      {"rmsnorm.dgain", rmsnorm_dgain},
      {"layernorm", layernorm},
      {"layernorm.dx", layernorm_dx},
      {"layernorm.dgain", layernorm_dgain},
      {"row_norms", row_norms},
      {"token_sum", token_sum},
      {"attention", attention},
      {"attention.grad", attention_grad},
  };
  return kAll;
}

}  // namespace mantissa::graph::testing
